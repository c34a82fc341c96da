#include "tests/kernels/cuda/cpu_results.h"

#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/model/dropout.h"
#include "kernels/cpu/model/rotation.h"
#include "kernels/cpu/model/undo_adamw.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/optimizer.h"
#include "tests/kernels/cuda/examples.h"

namespace spiritlevel {
namespace {

using cuda::View;
using Results = std::map<std::string, Doubles>;

// An operand, widened, without gaps.
class Numbers {
 public:
  explicit Numbers(const View& view)
      : rows_(view.rows), cols_(view.cols), floats_(Floats(ValuesOf(view))) {}

  float* data() { return floats_.data(); }
  std::vector<float>& floats() { return floats_; }
  cpu::Matrix view() { return cpu::Matrix(floats_.data(), rows_, cols_); }
  Doubles values() const { return AsDoubles(floats_); }

 private:
  int64_t rows_;
  int64_t cols_;
  std::vector<float> floats_;
};

std::vector<int32_t> Integers(const View& view) {
  std::vector<int32_t> integers;
  for (const double value : ValuesOf(view)) integers.push_back(static_cast<int32_t>(value));
  return integers;
}

struct OnCpu {
  Results operator()(const cuda::Product& c) const {
    const auto transposed = [](const View& view, bool transpose) {
      Doubles values = ValuesOf(view);
      if (!transpose) return values;
      const Doubles before = values;
      for (int64_t i = 0; i < view.rows; ++i) {
        for (int64_t j = 0; j < view.cols; ++j)
          values[j * view.rows + i] = before[i * view.cols + j];
      }
      return values;
    };
    const int64_t inner = c.transpose_a ? c.a.rows : c.a.cols;
    Doubles out = Product(transposed(c.a, c.transpose_a), transposed(c.b, c.transpose_b), c.c.rows,
                          c.c.cols, inner);
    const Doubles before = ValuesOf(c.c);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(c.alpha) * out[i] + static_cast<double>(c.beta) * before[i];
    }
    return {{"c", out}};
  }
  Results operator()(const cuda::Fill& c) const {
    return {{"to", Doubles(static_cast<size_t>(c.to.size()), static_cast<double>(c.value))}};
  }
  Results operator()(const cuda::Convert& c) const { return {{"to", ValuesOf(c.from)}}; }
  Results operator()(const cuda::Add& c) const {
    Numbers a(c.a);
    Numbers b(c.b);
    for (size_t i = 0; i < a.floats().size(); ++i) a.floats()[i] += b.floats()[i];
    return {{"to", a.values()}};
  }
  Results operator()(const cuda::AddBias& c) const {
    Numbers x(c.x);
    Numbers bias(c.bias);
    for (size_t i = 0; i < x.floats().size(); ++i) {
      x.floats()[i] += bias.floats()[i % bias.floats().size()];
    }
    return {{"x", x.values()}};
  }
  Results operator()(const cuda::ColumnSums& c) const {
    Numbers x(c.x);
    Numbers sums(c.sums);
    std::vector<float> one(static_cast<size_t>(c.x.rows), 1.0f);
    std::vector<float> dw(static_cast<size_t>(c.x.cols));
    cpu::LinearWeightGrad(cpu::Matrix(one.data(), c.x.rows, 1), x.view(),
                          cpu::Matrix(dw.data(), 1, c.x.cols), sums.data());
    return {{"sums", sums.values()}};
  }
  Results operator()(const cuda::SumOfSquares& c) const {
    return {{"sum", {cpu::SumOfSquares(Numbers(c.x).floats())}}};
  }
  Results operator()(const cuda::SwigluForward& c) const {
    Numbers gate(c.gate);
    Numbers up(c.up);
    Numbers y(c.y);
    cpu::SwigluForward(gate.view(), up.view(), y.view());
    return {{"y", y.values()}};
  }
  Results operator()(const cuda::SwigluBackward& c) const {
    Numbers gate(c.gate);
    Numbers up(c.up);
    Numbers dy(c.dy);
    cpu::SwigluBackward(gate.view(), up.view(), dy.view(), gate.view(), up.view());
    return {{"dgate", gate.values()}, {"dup", up.values()}};
  }
  Results operator()(const cuda::GeluForward& c) const {
    Numbers x(c.x);
    Numbers y(c.y);
    cpu::GeluForward(x.view(), y.view());
    return {{"y", y.values()}};
  }
  Results operator()(const cuda::GeluBackward& c) const {
    Numbers x(c.x);
    Numbers dy(c.dy);
    cpu::GeluBackward(x.view(), dy.view(), x.view());
    return {{"dx", x.values()}};
  }
  Results operator()(const cuda::Rotate& c) const {
    Numbers table(c.table);
    Numbers x(c.x);
    cpu::Rotate(table.view(), c.head_dim, c.back ? cpu::Turn::kBack : cpu::Turn::kForward,
                x.view());
    return {{"x", x.values()}};
  }
  Results operator()(const cuda::Dropout& c) const {
    Numbers x(c.x);
    const cpu::DropoutSite site{c.seed, c.iteration, c.micro_batch, c.layer,
                                static_cast<cpu::DropoutSite::Place>(c.place)};
    cpu::ApplyDropout(c.probability, site, x.view());
    return {{"x", x.values()}};
  }

  Results operator()(const cuda::RmsNormForward& c) const {
    Numbers x(c.x);
    Numbers y(c.y);
    Numbers statistics(c.statistics);
    cpu::RmsNormForward(x.view(), Numbers(c.weight).data(), c.epsilon, y.view(), statistics.data());
    return {{"y", y.values()}, {"statistics", statistics.values()}};
  }
  Results operator()(const cuda::RmsNormInputGrad& c) const {
    Numbers x(c.x);
    Numbers dy(c.dy);
    Numbers dx(c.dx);
    cpu::RmsNormInputGrad(x.view(), Numbers(c.weight).data(), Numbers(c.statistics).data(),
                          dy.view(), dx.view());
    return {{"dx", dx.values()}};
  }
  Results operator()(const cuda::RmsNormWeightGrad& c) const {
    Numbers x(c.x);
    Numbers dy(c.dy);
    Numbers dweight(c.dweight);
    cpu::RmsNormWeightGrad(x.view(), Numbers(c.statistics).data(), dy.view(), dweight.data());
    return {{"dweight", dweight.values()}};
  }
  Results operator()(const cuda::LayerNormForward& c) const {
    Numbers x(c.x);
    Numbers y(c.y);
    Numbers statistics(c.statistics);
    cpu::LayerNormForward(x.view(), Numbers(c.weight).data(), Numbers(c.bias).data(), c.epsilon,
                          y.view(), statistics.data(), statistics.data() + c.x.rows);
    return {{"y", y.values()}, {"statistics", statistics.values()}};
  }
  Results operator()(const cuda::LayerNormInputGrad& c) const {
    Numbers x(c.x);
    Numbers dy(c.dy);
    Numbers dx(c.dx);
    Numbers statistics(c.statistics);
    cpu::LayerNormInputGrad(x.view(), Numbers(c.weight).data(), statistics.data(),
                            statistics.data() + c.x.rows, dy.view(), dx.view());
    return {{"dx", dx.values()}};
  }
  Results operator()(const cuda::LayerNormWeightGrad& c) const {
    Numbers x(c.x);
    Numbers dy(c.dy);
    Numbers statistics(c.statistics);
    Numbers dweight(c.dweight);
    Numbers dbias(c.dbias);
    cpu::LayerNormWeightGrad(x.view(), statistics.data(), statistics.data() + c.x.rows, dy.view(),
                             dweight.data(), dbias.data());
    return {{"dweight", dweight.values()}, {"dbias", dbias.values()}};
  }

  Results operator()(const cuda::EmbeddingForward& c) const {
    Numbers table(c.table);
    Numbers x(c.x);
    cpu::EmbeddingForward(Integers(c.tokens), table.view(), x.view());
    return {{"x", x.values()}};
  }
  Results operator()(const cuda::EmbeddingWeightGrad& c) const {
    Numbers dx(c.dx);
    Numbers dtable(c.dtable);
    cpu::EmbeddingWeightGrad(Integers(c.tokens), dx.view(), dtable.view());
    return {{"dtable", dtable.values()}};
  }
  Results operator()(const cuda::CrossEntropyForward& c) const {
    Numbers logits(c.logits);
    Numbers losses(c.losses);
    Numbers log_sum_exp(c.log_sum_exp);
    cpu::CrossEntropyForward(Integers(c.targets), logits.view(), losses.data(), log_sum_exp.data());
    return {{"losses", losses.values()}, {"log_sum_exp", log_sum_exp.values()}};
  }
  Results operator()(const cuda::CrossEntropyBackward& c) const {
    Numbers logits(c.logits);
    cpu::CrossEntropyBackward(Integers(c.targets), Numbers(c.log_sum_exp).data(), c.scale,
                              logits.view());
    return {{"logits", logits.values()}};
  }

  Results operator()(const cuda::AttentionForward&) const { return Refused(); }
  Results operator()(const cuda::AttentionBackward&) const { return Refused(); }

  Results operator()(const cuda::AdamWStep& c) const { return AdamW(c, cpu::AdamWStep); }
  Results operator()(const cuda::AdamWUndo& c) const { return AdamW(c.step, cpu::UndoAdamWStep); }

  static Results Refused() {
    SPIRITLEVEL_CHECK(false, "attention has tests of its own");
    return {};
  }

  template <typename Function>
  static Results AdamW(const cuda::AdamWStep& c, const Function& function) {
    const cpu::AdamW options{c.rate, c.beta1, c.beta2, c.epsilon, c.weight_decay};
    Numbers exact(c.exact);
    Numbers m(c.first_moment);
    Numbers v(c.second_moment);
    function(options, c.step, c.clip, Numbers(c.gradient).floats(), exact.floats(), m.floats(),
             v.floats());
    return {{"exact", exact.values()},
            {"first_moment", m.values()},
            {"second_moment", v.values()},
            {"stored", exact.values()}};
  }
};

}  // namespace

Results CpuResults(const cuda::Call& call) { return std::visit(OnCpu(), call); }

}  // namespace spiritlevel
