// Attention as a graph of matrix products, pointwise operations and sums, which is how cuDNN's
// backend is told of it. A value that knows nothing of cuDNN, so that it can be computed and
// checked anywhere; attention_cudnn.h makes descriptors of it.
//
// cuDNN has fused kernels for graphs of certain forms and no others: these are the forms that its
// documentation gives for scaled dot product attention (cuDNN, "Graph API", fused flash attention
// forward and backward), where masks, softmax and the sums over a row are spelled out.
//
// Of backward the form is the one whose dQ is a product's result, and not a sum into which blocks
// add as they come: the one that cuDNN computes in one order. Its price is a workspace for dS, in
// 16 bits, that grows with the square of the sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

enum class GraphType : uint8_t { kFloat32, kBFloat16, kInt32, kBoolean };

enum class GraphOperation : uint8_t {
  kMultiplyMatrices,  // of the last two dimensions; heads of the second may serve several
  kTranspose,         // of the last two dimensions
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kExp,
  kLog,
  kRowIndex,  // the place in the last dimension but one
  kColIndex,
  kGreaterOrEqual,
  kSelect,   // the third input says whether the first or the second
  kLargest,  // over those dimensions in which the output has fewer
  kSum,
};

// What of a call a tensor is; the others are nowhere in memory.
enum class GraphRole : uint8_t {
  kNone,
  kQ,
  kK,
  kV,
  kOut,
  kLogSumExp,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kDelta,
  kConstant,  // `value`
};

struct GraphTensor {
  GraphRole role = GraphRole::kNone;
  GraphType type = GraphType::kFloat32;
  int64_t dims[4] = {1, 1, 1, 1};
  int64_t strides[4] = {1, 1, 1, 1};
  float value = 0;

  bool is_virtual() const { return role == GraphRole::kNone; }
  friend bool operator==(const GraphTensor&, const GraphTensor&) = default;
};

struct GraphNode {
  GraphOperation operation;
  std::vector<int> inputs;  // tensors by their index
  int output;

  friend bool operator==(const GraphNode&, const GraphNode&) = default;
};

struct AttentionGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphNode> nodes;  // each behind those that it reads

  // Of calls with the same shapes and strides: one plan serves them.
  friend bool operator==(const AttentionGraph&, const AttentionGraph&) = default;
};

AttentionGraph GraphOf(const AttentionForward& call);
AttentionGraph GraphOf(const AttentionBackward& call);

// Where a tensor's memory is in a call.
void* DataOf(const AttentionForward& call, GraphRole role);
void* DataOf(const AttentionBackward& call, GraphRole role);

}  // namespace spiritlevel::cuda
