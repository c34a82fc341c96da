#include "calibrate/cuda_work.h"

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

using cuda::Call;
using cuda::ElementType;
using cuda::View;
using Content = OperandSpec::Content;
using Views = std::vector<View>;

constexpr auto kBFloat16 = ElementType::kBFloat16;
constexpr auto kFloat32 = ElementType::kFloat32;

OperandSpec Matrix(int64_t rows, int64_t cols, ElementType type = kBFloat16) {
  return {.type = type, .rows = rows, .cols = cols};
}
OperandSpec Shared(int64_t rows, int64_t cols, ElementType type, Content content) {
  return {.type = type, .rows = rows, .cols = cols, .content = content, .shared = true};
}
OperandSpec Workspace(int64_t floats) {
  return Shared(1, std::max<int64_t>(1, floats), kFloat32, Content::kZeros);
}
OperandSpec Tokens(int64_t count, int64_t vocabulary) {
  return {.type = ElementType::kInt32,
          .cols = count,
          .content = Content::kTokens,
          .vocabulary = vocabulary};
}

cuda::Product ProductOf(Gemm::Use use, const View& a, const View& b, const View& c) {
  return {.a = a,
          .transpose_a = use == Gemm::Use::kWeightGrad,
          .b = b,
          .transpose_b = use == Gemm::Use::kInputGrad,
          .c = c,
          .beta = use == Gemm::Use::kWeightGrad ? 1.0f : 0.0f};
}

struct WorkOf {
  Bytes l2;

  CudaWork operator()(const Gemm& g) const {
    const bool is_sum = g.use == Gemm::Use::kWeightGrad;
    const OperandSpec a = is_sum ? Matrix(g.k, g.m) : Matrix(g.m, g.k);
    const OperandSpec b = g.use == Gemm::Use::kInputGrad ? Matrix(g.n, g.k) : Matrix(g.k, g.n);
    return {{a, b, Matrix(g.m, g.n, is_sum ? kFloat32 : kBFloat16)}, [use = g.use](const Views& v) {
              return std::vector<Call>{ProductOf(use, v[0], v[1], v[2])};
            }};
  }

  CudaWork operator()(const Attention& a) const {
    SPIRITLEVEL_CHECK(a.window == 0, "this attention has no window");
    const cuda::AttentionShape shape{.batch = a.batch,
                                     .sequence = a.sequence,
                                     .heads = a.heads,
                                     .kv_heads = a.kv_heads,
                                     .head_dim = a.head_dim,
                                     .causal = a.causal};
    const OperandSpec q = Matrix(a.batch * a.sequence, a.heads * a.head_dim);
    const OperandSpec kv = Matrix(a.batch * a.sequence, a.kv_heads * a.head_dim);
    const OperandSpec sums = Matrix(a.batch * a.heads, a.sequence, kFloat32);
    if (!a.backward) {
      return {
          {q, kv, kv, q, sums}, [shape](const Views& v) {
            return std::vector<Call>{cuda::AttentionForward{
                .shape = shape, .q = v[0], .k = v[1], .v = v[2], .out = v[3], .log_sum_exp = v[4]}};
          }};
    }
    const OperandSpec workspace = Workspace(cuda::AttentionWorkspace(shape) / 4);
    return {{q, kv, kv, q, sums, q, q, kv, kv, workspace}, [shape](const Views& v) {
              return std::vector<Call>{cuda::AttentionBackward{.shape = shape,
                                                               .q = v[0],
                                                               .k = v[1],
                                                               .v = v[2],
                                                               .out = v[3],
                                                               .log_sum_exp = v[4],
                                                               .dout = v[5],
                                                               .dq = v[6],
                                                               .dk = v[7],
                                                               .dv = v[8],
                                                               .workspace = v[9]}};
            }};
  }

  CudaWork operator()(const Norm& n) const {
    const OperandSpec x = Matrix(n.rows, n.width);
    const OperandSpec weight = Shared(1, n.width, kBFloat16, Content::kNumbers);
    const OperandSpec statistics = Matrix(1, n.rows, kFloat32);
    if (n.part == Norm::Part::kForward) {
      return {{x, x, weight, statistics}, [](const Views& v) {
                return std::vector<Call>{cuda::RmsNormForward{
                    .x = v[0], .weight = v[2], .epsilon = 1e-5f, .y = v[1], .statistics = v[3]}};
              }};
    }
    const OperandSpec sums = Shared(1, n.width, kFloat32, Content::kZeros);
    const OperandSpec workspace = Workspace(cuda::ColumnSumsWorkspace(n.rows, n.width));
    const auto input_grad = [](const Views& v) {
      return cuda::RmsNormInputGrad{
          .x = v[0], .weight = v[2], .statistics = v[3], .dy = v[1], .dx = v[4]};
    };
    if (n.part == Norm::Part::kInputGrad) {
      return {{x, x, weight, statistics, x},
              [=](const Views& v) { return std::vector<Call>{input_grad(v)}; }};
    }
    if (n.part == Norm::Part::kWeightGrad) {
      return {{x, x, sums, statistics, workspace}, [](const Views& v) {
                return std::vector<Call>{cuda::RmsNormWeightGrad{
                    .x = v[0], .statistics = v[3], .dy = v[1], .dweight = v[2], .workspace = v[4]}};
              }};
    }
    return {
        {x, x, weight, statistics, x, sums, workspace}, [=](const Views& v) {
          return std::vector<Call>{
              input_grad(v),
              cuda::RmsNormWeightGrad{
                  .x = v[0], .statistics = v[3], .dy = v[1], .dweight = v[5], .workspace = v[6]}};
        }};
  }

  // As SwiGLU's forward: two tensors in, one out.
  CudaWork operator()(const Elementwise& e) const {
    const int64_t size = std::max<int64_t>(1, e.bytes_moved / (3 * cuda::SizeOf(kBFloat16)));
    const OperandSpec x = Matrix(1, size);
    return {{x, x, x}, [](const Views& v) {
              return std::vector<Call>{cuda::SwigluForward{.gate = v[0], .up = v[1], .y = v[2]}};
            }};
  }

  // The table is larger than the L2, and each set asks for other rows of it.
  CudaWork operator()(const Embedding& e) const {
    const ElementType type = e.backward ? kFloat32 : kBFloat16;
    const int64_t vocabulary =
        std::max<int64_t>(1'024, 2 * l2 / (e.width * cuda::SizeOf(type)) + 1);
    const OperandSpec table = Shared(vocabulary, e.width, type, Content::kNumbers);
    return {{Tokens(e.tokens, vocabulary), Matrix(e.tokens, e.width), table},
            [backward = e.backward](const Views& v) {
              if (backward) {
                return std::vector<Call>{
                    cuda::EmbeddingWeightGrad{.tokens = v[0], .dx = v[1], .dtable = v[2]}};
              }
              return std::vector<Call>{
                  cuda::EmbeddingForward{.tokens = v[0], .table = v[2], .x = v[1]}};
            }};
  }

  CudaWork operator()(const Loss& l) const {
    return {{Tokens(l.tokens, l.vocabulary), Matrix(l.tokens, l.vocabulary),
             Matrix(1, l.tokens, kFloat32), Matrix(1, l.tokens, kFloat32)},
            [l](const Views& v) {
              if (l.backward) {
                return std::vector<Call>{
                    cuda::CrossEntropyBackward{.targets = v[0],
                                               .log_sum_exp = v[3],
                                               .scale = 1.0f / static_cast<float>(l.tokens),
                                               .logits = v[1]}};
              }
              return std::vector<Call>{cuda::CrossEntropyForward{
                  .targets = v[0], .logits = v[1], .losses = v[2], .log_sum_exp = v[3]}};
            }};
  }

  CudaWork operator()(const Kernel& kernel) const { return std::visit(*this, kernel); }

  CudaWork operator()(const OptimizerStep& step) const {
    const OperandSpec exact = Matrix(1, step.parameters, kFloat32);
    OperandSpec moment = exact;
    moment.content = Content::kZeros;  // a second moment is never negative
    const int64_t partial = cuda::SumOfSquaresWorkspace(step.parameters);
    return {{exact, exact, moment, moment, Matrix(1, step.parameters),
             Shared(1, 1, ElementType::kFloat64, Content::kZeros),
             Shared(1, partial, ElementType::kFloat64, Content::kZeros)},
            [](const Views& v) {
              return std::vector<Call>{
                  cuda::SumOfSquares{.x = v[0], .sum = v[5], .workspace = v[6]},
                  cuda::AdamWStep{.step = 1'000,
                                  .gradient = v[0],
                                  .exact = v[1],
                                  .first_moment = v[2],
                                  .second_moment = v[3],
                                  .stored = v[4]}};
            }};
  }

  CudaWork operator()(const EmptyOp&) const {
    SPIRITLEVEL_CHECK(false, "an empty op has no operands");
  }
};

}  // namespace

CudaWork CudaWorkOf(const Work& work, Bytes l2) { return std::visit(WorkOf{l2}, work); }

CudaWork Float8Work(const Gemm& g) {
  const bool is_sum = g.use == Gemm::Use::kWeightGrad;
  const auto gradient = ElementType::kFloat8E5M2;
  const auto value = ElementType::kFloat8E4M3;
  const OperandSpec a = Matrix(g.m, g.k, g.use == Gemm::Use::kInputGrad ? gradient : value);
  const OperandSpec b = Matrix(g.n, g.k, is_sum ? gradient : value);
  const OperandSpec c = Matrix(g.m, g.n, is_sum ? kFloat32 : kBFloat16);
  const OperandSpec scale = Shared(1, 1, kFloat32, Content::kOnes);
  return {
      {a, b, c, scale, scale}, [is_sum](const Views& v) {
        return std::vector<Call>{cuda::Product{.a = v[0],
                                               .b = v[1],
                                               .transpose_b = true,
                                               .c = v[2],
                                               .beta = is_sum ? 1.0f : 0.0f,
                                               .scale_a = static_cast<const float*>(v[3].data),
                                               .scale_b = static_cast<const float*>(v[4].data)}};
      }};
}

}  // namespace spiritlevel
