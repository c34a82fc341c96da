// The flags of a CSV with sends and receives, which export and search write.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "report/torch_comms_csv.h"

namespace spiritlevel {

struct CommsFlags {
  bool no_reduce_grad = false;
  bool shards = false;

  void AddTo(CLI::App& command);
  // Throws InputError for a flag that would do nothing; `way_out` says with what it would.
  void RefuseIdle(bool writes_comms, const std::string& way_out) const;
  TorchCommsOptions Options() const { return {.reduce_grad = !no_reduce_grad, .shards = shards}; }
};

}  // namespace spiritlevel
