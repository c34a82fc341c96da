#include "tests/kernels/cuda/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/cuda/math/rows.h"

namespace spiritlevel::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr std::byte kUnwritten{0xAB};

int64_t Wide(const AttentionShape& s) { return s.heads * s.head_dim; }
int64_t Narrow(const AttentionShape& s) { return s.kv_heads * s.head_dim; }

View Queries(const View& qkv, const AttentionShape& s) { return qkv.Columns(0, Wide(s)); }
View Keys(const View& qkv, const AttentionShape& s) { return qkv.Columns(Wide(s), Narrow(s)); }
View Values(const View& qkv, const AttentionShape& s) {
  return qkv.Columns(Wide(s) + Narrow(s), Narrow(s));
}

// One query row of one head in float64: weights of all keys.
struct HeadInFloat64 {
  const AttentionShape& s;
  int64_t batch;
  int64_t head;
  double scale;

  int64_t kv() const { return head / (s.heads / s.kv_heads); }
  size_t Wide(int64_t token, int64_t d) const {
    return static_cast<size_t>(((batch * s.sequence + token) * s.heads + head) * s.head_dim + d);
  }
  size_t Narrow(int64_t token, int64_t d) const {
    return static_cast<size_t>(((batch * s.sequence + token) * s.kv_heads + kv()) * s.head_dim + d);
  }
  double Dot(const Doubles& a, int64_t query, const Doubles& b, int64_t key) const {
    double sum = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) sum += a[Wide(query, d)] * b[Narrow(key, d)];
    return sum;
  }
  int64_t Seen(int64_t query) const { return s.causal ? query + 1 : s.sequence; }
};

struct Operands {
  Doubles q, k, v, dout;
};

void RowInFloat64(const HeadInFloat64& h, int64_t i, const Operands& x, AttentionResults* r) {
  const auto seen = static_cast<size_t>(h.Seen(i));
  Doubles weights(seen);
  for (size_t j = 0; j < seen; ++j)
    weights[j] = h.scale * h.Dot(x.q, i, x.k, static_cast<int64_t>(j));
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  r->log_sum_exp[static_cast<size_t>((h.batch * h.s.heads + h.head) * h.s.sequence + i)] =
      largest + std::log(sum);
  for (double& weight : weights) weight /= sum;
  Doubles gradients(seen);
  double delta = 0;
  for (size_t j = 0; j < seen; ++j) {
    gradients[j] = h.Dot(x.dout, i, x.v, static_cast<int64_t>(j));
    delta += weights[j] * gradients[j];
  }
  for (size_t j = 0; j < seen; ++j) {
    const double gradient = h.scale * weights[j] * (gradients[j] - delta);
    for (int64_t d = 0; d < h.s.head_dim; ++d) {
      const size_t wide = h.Wide(i, d);
      const size_t narrow = h.Narrow(static_cast<int64_t>(j), d);
      r->out[wide] += weights[j] * x.v[narrow];
      r->dq[wide] += gradient * x.k[narrow];
      r->dk[narrow] += gradient * x.q[wide];
      r->dv[narrow] += weights[j] * x.dout[wide];
    }
  }
}

}  // namespace

std::string NameOf(const AttentionCase& c) {
  const AttentionShape& s = c.shape;
  return std::to_string(s.batch) + "x" + std::to_string(s.sequence) + "x" +
         std::to_string(s.heads) + "over" + std::to_string(s.kv_heads) + "x" +
         std::to_string(s.head_dim) + (s.causal ? "causal" : "full") +
         (c.type == ElementType::kBFloat16 ? "Bf16" : "Fp32") + "Gap" + std::to_string(c.gap);
}
void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << NameOf(c) << ", size " << c.size << ", seed " << c.seed;
}

// The first view is not at 0, which as a pointer is none.
AttentionProblem::AttentionProblem(const AttentionCase& c)
    : case_(c), memory_(kAlignment, kUnwritten) {
  const AttentionShape& s = c.shape;
  const int64_t rows = s.batch * s.sequence;
  const int64_t cols = Wide(s) + 2 * Narrow(s);
  qkv_ = Place(rows, cols, c.type, c.gap);
  dqkv_ = Place(rows, cols, c.type, c.gap);
  out_ = Place(rows, Wide(s), c.type, c.gap);
  dout_ = Place(rows, Wide(s), c.type, c.gap);
  log_sum_exp_ = Place(s.batch * s.heads, s.sequence, ElementType::kFloat32, 3);
  workspace_ =
      Place(1, AttentionWorkspace(s) / SizeOf(ElementType::kFloat32), ElementType::kFloat32, 0);
  FillRandomly(qkv_, c.seed);
  FillRandomly(dout_, c.seed + 1);
  initial_ = memory_;
}

View AttentionProblem::Place(int64_t rows, int64_t cols, ElementType type, int64_t gap) {
  const size_t offset = memory_.size();
  const Bytes bytes = rows * (cols + gap) * SizeOf(type);
  const auto rounded = static_cast<size_t>((bytes / kAlignment + 1) * kAlignment);
  memory_.resize(offset + rounded, kUnwritten);
  // An offset is no pointer, and is never used as one.
  return {reinterpret_cast<void*>(offset), type, rows, cols, cols + gap};
}

View AttentionProblem::At(const View& view, const void* base) const {
  View at = view;
  at.data = static_cast<std::byte*>(const_cast<void*>(base)) + reinterpret_cast<size_t>(view.data);
  return at;
}

void AttentionProblem::FillRandomly(const View& view, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> between(-case_.size, case_.size);
  WithStorage(view.type, [&](auto element) {
    using T = decltype(element);
    const Rows<T> rows = RowsOf<T>(At(view, memory_.data()));
    for (int64_t i = 0; i < view.rows; ++i) {
      for (int64_t j = 0; j < view.cols; ++j) {
        rows.row(i)[j] = FromFloat<T>(static_cast<float>(between(random)));
      }
    }
  });
}

Doubles AttentionProblem::Read(const View& view) const {
  Doubles values;
  WithStorage(view.type, [&](auto element) {
    using T = decltype(element);
    const Rows<const T> rows = RowsOf<const T>(At(view, memory_.data()));
    for (int64_t i = 0; i < view.rows; ++i) {
      for (int64_t j = 0; j < view.cols; ++j) {
        values.push_back(static_cast<double>(ToFloat(rows.row(i)[j])));
      }
    }
  });
  return values;
}

AttentionForward AttentionProblem::Forward(void* base) const {
  const View qkv = At(qkv_, base);
  return {.shape = case_.shape,
          .q = Queries(qkv, case_.shape),
          .k = Keys(qkv, case_.shape),
          .v = Values(qkv, case_.shape),
          .out = At(out_, base),
          .log_sum_exp = At(log_sum_exp_, base)};
}

AttentionBackward AttentionProblem::Backward(void* base) const {
  const View qkv = At(qkv_, base);
  const View dqkv = At(dqkv_, base);
  return {.shape = case_.shape,
          .q = Queries(qkv, case_.shape),
          .k = Keys(qkv, case_.shape),
          .v = Values(qkv, case_.shape),
          .out = At(out_, base),
          .log_sum_exp = At(log_sum_exp_, base),
          .dout = At(dout_, base),
          .dq = Queries(dqkv, case_.shape),
          .dk = Keys(dqkv, case_.shape),
          .dv = Values(dqkv, case_.shape),
          .workspace = At(workspace_, base)};
}

AttentionResults AttentionProblem::Results() const {
  const AttentionShape& s = case_.shape;
  return {.out = Read(out_),
          .log_sum_exp = Read(log_sum_exp_),
          .dq = Read(Queries(dqkv_, s)),
          .dk = Read(Keys(dqkv_, s)),
          .dv = Read(Values(dqkv_, s))};
}

void AttentionProblem::Mark(const View& view, std::vector<bool>* written) const {
  const auto size = static_cast<size_t>(SizeOf(view.type));
  for (int64_t i = 0; i < view.rows; ++i) {
    const size_t begin =
        reinterpret_cast<size_t>(view.data) + static_cast<size_t>(i * view.stride) * size;
    std::fill_n(written->begin() + static_cast<std::ptrdiff_t>(begin),
                view.cols * SizeOf(view.type), true);
  }
}

bool AttentionProblem::OnlyResultsAreWritten() const {
  std::vector<bool> written(memory_.size());
  for (const View* const view : {&dqkv_, &out_, &log_sum_exp_, &workspace_}) Mark(*view, &written);
  for (size_t i = 0; i < memory_.size(); ++i) {
    if (!written[i] && memory_[i] != initial_[i]) return false;
  }
  return true;
}

AttentionResults AttentionProblem::InFloat64() const {
  const AttentionShape& s = case_.shape;
  const Operands x{.q = Read(Queries(qkv_, s)),
                   .k = Read(Keys(qkv_, s)),
                   .v = Read(Values(qkv_, s)),
                   .dout = Read(dout_)};
  AttentionResults r{.out = Doubles(x.q.size()),
                     .log_sum_exp = Doubles(static_cast<size_t>(s.batch * s.heads * s.sequence)),
                     .dq = Doubles(x.q.size()),
                     .dk = Doubles(x.k.size()),
                     .dv = Doubles(x.k.size())};
  const double scale =
      s.scale != 0 ? static_cast<double>(s.scale) : 1 / std::sqrt(static_cast<double>(s.head_dim));
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const HeadInFloat64 h{s, batch, head, scale};
      for (int64_t i = 0; i < s.sequence; ++i) RowInFloat64(h, i, x, &r);
    }
  }
  return r;
}

namespace {

double Largest(const Doubles& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// In units of the result; where that is 0, as of a sequence of one token, in those of dV.
double GradientError(const Doubles& a, const Doubles& b, const Doubles& dv) {
  if (Largest(b) > 1e-6 * Largest(dv)) return RelativeError(a, b);
  for (const double value : a) {
    if (std::isnan(value)) return 1;
  }
  return a.size() == b.size() ? Largest(a) / Largest(dv) : 1;
}

}  // namespace

double WorstError(const AttentionResults& a, const AttentionResults& b) {
  return std::max({RelativeError(a.out, b.out), RelativeError(a.log_sum_exp, b.log_sum_exp),
                   GradientError(a.dq, b.dq, b.dv), GradientError(a.dk, b.dk, b.dv),
                   RelativeError(a.dv, b.dv)});
}

}  // namespace spiritlevel::cuda
