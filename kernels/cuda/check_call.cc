#include <fmt/format.h>

#include <cmath>

#include "kernels/cuda/call_views.h"
#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {
namespace {

bool IsStorage(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kBFloat16;
}
bool IsFloat8(ElementType type) {
  return type == ElementType::kFloat8E4M3 || type == ElementType::kFloat8E5M2;
}

bool SameShape(const View& a, const View& b) { return a.rows == b.rows && a.cols == b.cols; }

class Checker {
 public:
  explicit Checker(const Call& call) : call_(call) {}

  // `what`: that which must hold.
  void Require(bool holds, const char* what) const {
    if (!holds) ThrowInvariantError(__FILE__, __LINE__, Describe(call_).c_str(), what);
  }

  void Check() const {
    for (const NamedView& operand : ViewsOf(call_)) CheckMatrix(*operand.view);
    std::visit(*this, call_);
  }

  void operator()(const Product& c) const {
    const int64_t rows = c.transpose_a ? c.a.cols : c.a.rows;
    const int64_t inner = c.transpose_a ? c.a.rows : c.a.cols;
    const int64_t inner_of_b = c.transpose_b ? c.b.cols : c.b.rows;
    const int64_t cols = c.transpose_b ? c.b.rows : c.b.cols;
    Require(inner == inner_of_b, "the columns of A are as many as the rows of B");
    Require(rows == c.c.rows && cols == c.c.cols, "C has the rows of A and the columns of B");
    const bool both_wide = IsStorage(c.a.type) && c.a.type == c.b.type;
    const bool both_fp8 = IsFloat8(c.a.type) && IsFloat8(c.b.type);
    Require(both_wide || both_fp8, "A and B are fp32, bf16, or fp8, both");
    Require(IsStorage(c.c.type), "C is fp32 or bf16");
    Require(both_fp8 || (c.scale_a == nullptr && c.scale_b == nullptr), "fp8 alone is scaled");
  }
  void operator()(const Fill& c) const {
    Require(IsStorage(c.to.type) || IsFloat8(c.to.type), "what is filled is floating-point");
  }
  void operator()(const Convert& c) const {
    Require(SameShape(c.from, c.to), "a conversion keeps the shape");
    Require(IsStorage(c.from.type) || IsFloat8(c.from.type), "what is converted is fp32 or less");
    Require(IsStorage(c.to.type) || IsFloat8(c.to.type), "it becomes fp32 or less");
  }
  void operator()(const Add& c) const { Elementwise({&c.a, &c.b, &c.to}); }
  void operator()(const AddBias& c) const {
    Stored({&c.bias, &c.x});
    Vector(c.bias, c.x.cols, "a bias has one number for each column");
  }
  void operator()(const ColumnSums& c) const {
    Stored({&c.x});
    Vector(c.sums, c.x.cols, "there is one sum for each column");
    Float32({&c.sums});
    ColumnSumsFit(c.x, 1, c.workspace);
  }
  void operator()(const SumOfSquares& c) const {
    Float32({&c.x});
    Require(c.sum.type == ElementType::kFloat64 && c.workspace.type == ElementType::kFloat64,
            "sums of squares are fp64");
    Vector(c.sum, 1, "there is one sum");
    Require(!c.workspace.has_gaps() && c.workspace.size() >= SumOfSquaresWorkspace(c.x.size()),
            "the workspace is large enough");
  }
  void operator()(const SwigluForward& c) const { Elementwise({&c.gate, &c.up, &c.y}); }
  void operator()(const SwigluBackward& c) const {
    Elementwise({&c.gate, &c.up, &c.dy, &c.dgate, &c.dup});
  }
  void operator()(const GeluForward& c) const { Elementwise({&c.x, &c.y}); }
  void operator()(const GeluBackward& c) const { Elementwise({&c.x, &c.dy, &c.dx}); }
  void operator()(const Rotate& c) const {
    Stored({&c.x});
    Float32({&c.table});
    Require(c.head_dim > 0 && c.head_dim % 2 == 0 && c.x.cols % c.head_dim == 0,
            "whole heads are rotated");
    Require(2 * c.table.cols == c.head_dim, "the table has half a head's columns");
    Require(c.table.rows > 0 && c.table.rows % 2 == 0, "it has cosines and sines");
  }
  void operator()(const Dropout& c) const {
    Stored({&c.x});
    Require(c.probability >= 0 && c.probability < 1, "dropout has a probability");
    Require(!c.x.has_gaps(), "a mask is counted through without gaps");
    for (const int64_t part : {(c.x.size() + 3) / 4, c.iteration, c.micro_batch}) {
      Require(part >= 0 && part <= int64_t{UINT32_MAX}, "a part of a counter has 32 bits");
    }
    Require(c.layer >= 0 && c.layer < (int64_t{1} << 30) && c.place < 4,
            "a part of a counter has 32 bits");
  }

  void operator()(const RmsNormForward& c) const {
    Elementwise({&c.x, &c.y});
    NormFits(c.x, c.statistics, 1, c.weight);
  }
  void operator()(const RmsNormInputGrad& c) const {
    Elementwise({&c.x, &c.dy, &c.dx});
    NormFits(c.x, c.statistics, 1, c.weight);
  }
  void operator()(const RmsNormWeightGrad& c) const {
    Elementwise({&c.x, &c.dy});
    StatisticsFit(c.x, c.statistics, 1);
    Float32({&c.dweight});
    Vector(c.dweight, c.x.cols, "a norm's weight has one number for each column");
    ColumnSumsFit(c.x, 1, c.workspace);
  }
  void operator()(const LayerNormForward& c) const {
    Elementwise({&c.x, &c.y});
    NormFits(c.x, c.statistics, 2, c.weight);
    Stored({&c.x, &c.bias});
    Vector(c.bias, c.x.cols, "a bias has one number for each column");
  }
  void operator()(const LayerNormInputGrad& c) const {
    Elementwise({&c.x, &c.dy, &c.dx});
    NormFits(c.x, c.statistics, 2, c.weight);
  }
  void operator()(const LayerNormWeightGrad& c) const {
    Elementwise({&c.x, &c.dy});
    StatisticsFit(c.x, c.statistics, 2);
    Float32({&c.dweight, &c.dbias});
    Vector(c.dweight, c.x.cols, "a norm's weight has one number for each column");
    Vector(c.dbias, c.x.cols, "a bias has one number for each column");
    ColumnSumsFit(c.x, 2, c.workspace);
  }
  void operator()(const EmbeddingForward& c) const {
    Stored({&c.table, &c.x});
    Indices(c.tokens, c.x.rows);
    Require(c.table.cols == c.x.cols, "a row of the table is as long as one of X");
  }
  void operator()(const EmbeddingWeightGrad& c) const {
    Stored({&c.dx});
    Float32({&c.dtable});
    Indices(c.tokens, c.dx.rows);
    Require(c.dtable.cols == c.dx.cols, "a row of the table is as long as one of X");
  }
  void operator()(const CrossEntropyForward& c) const {
    LossFits(c.targets, c.logits, c.log_sum_exp);
    Float32({&c.losses});
    Vector(c.losses, c.logits.rows, "there is one loss for each row");
  }
  void operator()(const CrossEntropyBackward& c) const {
    LossFits(c.targets, c.logits, c.log_sum_exp);
  }

  void operator()(const AttentionForward& c) const {
    AttentionFits(c.shape, {&c.q, &c.out}, {&c.k, &c.v}, c.log_sum_exp);
  }
  void operator()(const AttentionBackward& c) const {
    AttentionFits(c.shape, {&c.q, &c.out, &c.dout, &c.dq}, {&c.k, &c.v, &c.dk, &c.dv},
                  c.log_sum_exp);
    Float32({&c.workspace});
    Require(!c.workspace.has_gaps() &&
                c.workspace.size() * SizeOf(ElementType::kFloat32) >= AttentionWorkspace(c.shape),
            "the workspace is large enough");
  }

  void operator()(const AdamWStep& c) const {
    Float32({&c.gradient, &c.exact, &c.first_moment, &c.second_moment});
    Shaped({&c.gradient, &c.exact, &c.first_moment, &c.second_moment},
           "each parameter has a gradient and two moments");
    Require(c.step >= 1, "steps count from 1");
    if (c.stored.empty()) return;
    Stored({&c.stored});
    Require(SameShape(c.exact, c.stored), "what is stored has the shape of what is exact");
  }
  void operator()(const AdamWUndo& c) const {
    (*this)(c.step);
    const double keep = 1 - double{c.step.rate} * double{c.step.weight_decay};
    Require(keep > 0 && c.step.beta1 > 0 && c.step.beta2 > 0, "the step has an inverse");
  }

 private:
  using Views = std::initializer_list<const View*>;

  void CheckMatrix(const View& view) const {
    Require(view.rows >= 0 && view.cols >= 0 && (view.rows <= 1 || view.stride >= view.cols),
            "the rows of a matrix are apart");
    Require(!view.empty() || view.size() == 0, "what has elements has memory");
    Require(reinterpret_cast<uintptr_t>(view.data) % static_cast<uint64_t>(SizeOf(view.type)) == 0,
            "elements lie where their type may");
  }

  // All of the first's shape.
  void Shaped(Views views, const char* what) const {
    for (const View* const view : views) Require(SameShape(**views.begin(), *view), what);
  }
  // All of one type, in which values are stored.
  void Stored(Views views) const {
    const ElementType type = (*views.begin())->type;
    Require(IsStorage(type), "values are stored as fp32 or bf16");
    for (const View* const view : views) Require(view->type == type, "operands have one type");
  }
  void Elementwise(Views views) const {
    Stored(views);
    Shaped(views, "operands have one shape");
  }
  void Float32(Views views) const {
    for (const View* const view : views) {
      Require(view->type == ElementType::kFloat32, "statistics, moments and sums are fp32");
    }
  }
  void Vector(const View& view, int64_t size, const char* what) const {
    Require(view.rows == 1 && view.cols == size, what);
  }
  void Indices(const View& view, int64_t rows) const {
    Require(view.type == ElementType::kInt32, "tokens are int32");
    Vector(view, rows, "there is one token for each row");
  }
  void ColumnSumsFit(const View& x, int64_t sums, const View& workspace) const {
    Float32({&workspace});
    Require(!workspace.has_gaps() && workspace.size() >= sums * ColumnSumsWorkspace(x.rows, x.cols),
            "the workspace is large enough");
  }
  void StatisticsFit(const View& x, const View& statistics, int64_t rows) const {
    Float32({&statistics});
    Require(x.cols > 0, "a norm is over some columns");
    Require(statistics.rows == rows && statistics.cols == x.rows,
            "a norm's statistics are some for each row");
  }
  void NormFits(const View& x, const View& statistics, int64_t rows, const View& weight) const {
    StatisticsFit(x, statistics, rows);
    Stored({&x, &weight});
    Vector(weight, x.cols, "a norm's weight has one number for each column");
  }
  void LossFits(const View& targets, const View& logits, const View& log_sum_exp) const {
    Stored({&logits});
    Require(logits.cols > 0, "there is a vocabulary");
    Indices(targets, logits.rows);
    Float32({&log_sum_exp});
    Vector(log_sum_exp, logits.rows, "there is one sum of exponentials for each row");
  }
  void AttentionFits(const AttentionShape& s, Views of_queries, Views of_keys,
                     const View& log_sum_exp) const {
    Require(s.batch > 0 && s.sequence > 0 && s.heads > 0 && s.kv_heads > 0 && s.head_dim > 0,
            "an attention has sequences and heads");
    Require(s.heads % s.kv_heads == 0, "heads share keys evenly");
    Require(std::isfinite(s.scale) && s.scale >= 0, "scores have a scale");
    Elementwise(of_queries);
    Elementwise(of_keys);
    Stored({*of_queries.begin(), *of_keys.begin()});
    const View& q = **of_queries.begin();
    const View& k = **of_keys.begin();
    Require(q.rows == s.batch * s.sequence && k.rows == q.rows, "rows are sequences of tokens");
    Require(q.cols == s.heads * s.head_dim, "the columns of queries are its heads");
    Require(k.cols == s.kv_heads * s.head_dim, "the columns of keys are its heads");
    Float32({&log_sum_exp});
    Require(log_sum_exp.rows == s.batch * s.heads && log_sum_exp.cols == s.sequence,
            "there is one sum of exponentials for each head and token");
  }

  const Call& call_;
};

}  // namespace

void CheckCall(const Call& call) { Checker(call).Check(); }

}  // namespace spiritlevel::cuda
