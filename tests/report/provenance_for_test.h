// Where numbers come from that nobody measured.
#pragma once

#include "report/provenance.h"

namespace spiritlevel {

inline Provenance ProvenanceForTest() {
  Provenance from{.scenario_file = "mine.textproto"};
  from.model = ModelProvenance{.config_file = "config.json",
                               .model_class = "LlamaForCausalLM",
                               .layers = 22,
                               .parameters = 1'100'048'384,
                               .sequence_length = 1024,
                               .micro_batch_size = 2,
                               .split = "balanced",
                               .splits = {{4, {6, 6, 6, 4}}, {8, {3, 3, 3, 3, 3, 3, 3, 1}}},
                               .recompute = {"none"},
                               .bucket_bytes = 25 << 20,
                               .assumptions = {"head_dim absent"},
                               .not_modelled = {"tensor parallelism"}};
  from.profile = ProfileProvenance{.file = "machine.textproto",
                                   .date = "2001-02-03",
                                   .cpu = "Abacus 3000",
                                   .dtype = "float32",
                                   .library = "beads 1.0",
                                   .held_out_shapes = 50,
                                   .held_out_p90 = 0.084};
  return from;
}

}  // namespace spiritlevel
