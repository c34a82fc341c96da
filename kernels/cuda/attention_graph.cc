#include "kernels/cuda/attention_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace spiritlevel::cuda {
namespace {

// Heads of a view: [batch, heads, sequence, head_dim].
GraphTensor HeadsOf(GraphRole role, const View& view, const AttentionShape& s, int64_t heads) {
  return {.role = role,
          .type = GraphType::kBFloat16,
          .dims = {s.batch, heads, s.sequence, s.head_dim},
          .strides = {s.sequence * view.stride, s.head_dim, view.stride, 1}};
}

GraphTensor Transposed(GraphTensor tensor) {
  std::swap(tensor.dims[2], tensor.dims[3]);
  std::swap(tensor.strides[2], tensor.strides[3]);
  return tensor;
}

// One number for each row of queries.
GraphTensor RowNumbers(GraphRole role, const AttentionShape& s, int64_t stride) {
  return {.role = role,
          .type = GraphType::kFloat32,
          .dims = {s.batch, s.heads, s.sequence, 1},
          .strides = {s.heads * stride, stride, 1, 1}};
}

class Builder {
 public:
  explicit Builder(const AttentionShape& shape) : shape_(shape) {}

  int Add(const GraphTensor& tensor) {
    graph_.tensors.push_back(tensor);
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  int Constant(float value) { return Add({.role = GraphRole::kConstant, .value = value}); }

  void Into(int output, GraphOperation operation, std::vector<int> inputs) {
    graph_.nodes.push_back({operation, std::move(inputs), output});
  }
  // To a tensor like `like`, which is nowhere in memory.
  int Make(GraphTensor like, GraphOperation operation, std::vector<int> inputs) {
    like.role = GraphRole::kNone;
    const int output = Add(like);
    Into(output, operation, std::move(inputs));
    return output;
  }

  GraphTensor Scores(GraphType type = GraphType::kFloat32) const {
    const int64_t n = shape_.sequence;
    return {.type = type,
            .dims = {shape_.batch, shape_.heads, n, n},
            .strides = {shape_.heads * n * n, n * n, n, 1}};
  }
  GraphTensor Rows() const { return RowNumbers(GraphRole::kNone, shape_, shape_.sequence); }
  // Of all query heads, without gaps.
  GraphTensor Heads(GraphType type) const {
    const int64_t n = shape_.sequence;
    const int64_t d = shape_.head_dim;
    return {.type = type,
            .dims = {shape_.batch, shape_.heads, n, d},
            .strides = {shape_.heads * n * d, n * d, d, 1}};
  }

  // Keys behind a query get a score whose exponential is 0. Not -inf, of which a difference may be
  // no number.
  int Masked(int scores) {
    if (!shape_.causal) return scores;
    const int rows = Make(Scores(GraphType::kInt32), GraphOperation::kRowIndex, {scores});
    const int cols = Make(Scores(GraphType::kInt32), GraphOperation::kColIndex, {scores});
    const int seen =
        Make(Scores(GraphType::kBoolean), GraphOperation::kGreaterOrEqual, {rows, cols});
    return Make(Scores(), GraphOperation::kSelect, {scores, Constant(-0x1p30f), seen});
  }

  // A product's result with `heads` query heads, summed over those that share a head of `output`.
  void SumOverGroup(int output, int left, int right) {
    if (shape_.heads == shape_.kv_heads) {
      return Into(output, GraphOperation::kMultiplyMatrices, {left, right});
    }
    const int all =
        Make(Heads(GraphType::kBFloat16), GraphOperation::kMultiplyMatrices, {left, right});
    Into(output, GraphOperation::kSum, {all});
  }

  AttentionGraph Finish() { return std::move(graph_); }

 private:
  AttentionShape shape_;
  AttentionGraph graph_;
};

float ScaleOf(const AttentionShape& s) {
  return s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<float>(s.head_dim));
}

}  // namespace

AttentionGraph GraphOf(const AttentionForward& call) {
  using enum GraphOperation;
  const AttentionShape& s = call.shape;
  Builder b(s);
  const int q = b.Add(HeadsOf(GraphRole::kQ, call.q, s, s.heads));
  const int k = b.Add(Transposed(HeadsOf(GraphRole::kK, call.k, s, s.kv_heads)));
  const int v = b.Add(HeadsOf(GraphRole::kV, call.v, s, s.kv_heads));
  const int out = b.Add(HeadsOf(GraphRole::kOut, call.out, s, s.heads));
  const int log_sum_exp = b.Add(RowNumbers(GraphRole::kLogSumExp, s, call.log_sum_exp.stride));
  const int products = b.Make(b.Scores(), kMultiplyMatrices, {q, k});
  const int scaled = b.Make(b.Scores(), kMultiply, {products, b.Constant(ScaleOf(s))});
  const int scores = b.Masked(scaled);
  const int largest = b.Make(b.Rows(), kLargest, {scores});
  const int below = b.Make(b.Scores(), kSubtract, {scores, largest});
  const int powers = b.Make(b.Scores(), kExp, {below});
  const int sums = b.Make(b.Rows(), kSum, {powers});
  const int logs = b.Make(b.Rows(), kLog, {sums});
  b.Into(log_sum_exp, kAdd, {largest, logs});
  const int weights = b.Make(b.Scores(GraphType::kBFloat16), kDivide, {powers, sums});
  b.Into(out, kMultiplyMatrices, {weights, v});
  return b.Finish();
}

AttentionGraph GraphOf(const AttentionBackward& call) {
  using enum GraphOperation;
  const AttentionShape& s = call.shape;
  Builder b(s);
  const GraphTensor keys = HeadsOf(GraphRole::kK, call.k, s, s.kv_heads);
  const int q = b.Add(HeadsOf(GraphRole::kQ, call.q, s, s.heads));
  const int k = b.Add(Transposed(keys));
  const int v = b.Add(Transposed(HeadsOf(GraphRole::kV, call.v, s, s.kv_heads)));
  const int out = b.Add(HeadsOf(GraphRole::kOut, call.out, s, s.heads));
  const int log_sum_exp = b.Add(RowNumbers(GraphRole::kLogSumExp, s, call.log_sum_exp.stride));
  const int dout = b.Add(HeadsOf(GraphRole::kDOut, call.dout, s, s.heads));
  const int dq = b.Add(HeadsOf(GraphRole::kDQ, call.dq, s, s.heads));
  const int dk = b.Add(HeadsOf(GraphRole::kDK, call.dk, s, s.kv_heads));
  const int dv = b.Add(HeadsOf(GraphRole::kDV, call.dv, s, s.kv_heads));
  const int delta = b.Add(RowNumbers(GraphRole::kDelta, s, s.sequence));

  // delta = rowsum(dOut out). The product by 1 is where the form has dropout's scale.
  const int dots = b.Make(b.Heads(GraphType::kFloat32), kMultiply, {dout, out});
  const int sums = b.Make(b.Rows(), kSum, {dots});
  b.Into(delta, kMultiply, {sums, b.Constant(1)});

  const int scale = b.Constant(ScaleOf(s));
  const int products = b.Make(b.Scores(), kMultiplyMatrices, {q, k});
  const int scaled = b.Make(b.Scores(), kMultiply, {products, scale});
  const int below = b.Make(b.Scores(), kSubtract, {scaled, log_sum_exp});
  const int weights = b.Make(b.Scores(), kExp, {b.Masked(below)});
  const int weights_by_key =
      b.Make(Transposed(b.Scores(GraphType::kBFloat16)), kTranspose, {weights});
  b.SumOverGroup(dv, weights_by_key, dout);

  const int dweights = b.Make(b.Scores(), kMultiplyMatrices, {dout, v});
  const int centered = b.Make(b.Scores(), kSubtract, {dweights, delta});
  const int dscaled = b.Make(b.Scores(), kMultiply, {centered, weights});
  const int dscores = b.Make(b.Scores(), kMultiply, {dscaled, scale});
  const int dscores_by_key =
      b.Make(Transposed(b.Scores(GraphType::kBFloat16)), kTranspose, {dscores});
  b.SumOverGroup(dk, dscores_by_key, q);

  const int keys_again = b.Make(keys, kTranspose, {k});
  b.Into(dq, kMultiplyMatrices, {dscores, keys_again});
  return b.Finish();
}

void* DataOf(const AttentionForward& call, GraphRole role) {
  switch (role) {
    case GraphRole::kQ:
      return call.q.data;
    case GraphRole::kK:
      return call.k.data;
    case GraphRole::kV:
      return call.v.data;
    case GraphRole::kOut:
      return call.out.data;
    case GraphRole::kLogSumExp:
      return call.log_sum_exp.data;
    default:
      return nullptr;
  }
}

void* DataOf(const AttentionBackward& call, GraphRole role) {
  switch (role) {
    case GraphRole::kDOut:
      return call.dout.data;
    case GraphRole::kDQ:
      return call.dq.data;
    case GraphRole::kDK:
      return call.dk.data;
    case GraphRole::kDV:
      return call.dv.data;
    case GraphRole::kDelta:
      return call.workspace.data;
    default:
      return DataOf(AttentionForward{.shape = call.shape,
                                     .q = call.q,
                                     .k = call.k,
                                     .v = call.v,
                                     .out = call.out,
                                     .log_sum_exp = call.log_sum_exp},
                    role);
  }
}

}  // namespace spiritlevel::cuda
