// Which tensors wait from one pass of a block for another, by name; docs/models.md has the table.
#pragma once

#include <vector>

#include "models/architecture.h"
#include "models/layer_ops.h"

namespace spiritlevel {

std::vector<KeptTensor> LayerTensorsKept(const Architecture& architecture, const BlockShape& shape);
std::vector<KeptTensor> EmbeddingTensorsKept(const Architecture& architecture,
                                             const BlockShape& shape);
std::vector<KeptTensor> HeadTensorsKept(const Architecture& architecture, const BlockShape& shape);

}  // namespace spiritlevel
