#include "calibrate/cpu_workloads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/optimizer.h"

namespace spiritlevel {
namespace {

using cpu::Matrix;

constexpr Bytes kFloat = sizeof(float);
constexpr int64_t kLine = 16;  // floats of a cache line

// Sets of operands, each cut from one piece of memory, used in turn.
class OperandSets {
 public:
  OperandSets(std::vector<int64_t> sizes, Bytes cold_bytes, OperandMemory& memory)
      : sizes_(std::move(sizes)) {
    // Apart by an odd number of cache lines: operands at equal places of their pages would
    // compete for the same lines of a cache.
    for (int64_t& size : sizes_) size = (size + kLine - 1) / kLine * kLine + 5 * kLine;
    for (const int64_t size : sizes_) stride_ += size;
    sets_ = std::max<int64_t>(1, cold_bytes / (stride_ * kFloat));
    storage_ = memory.Borrow(sets_ * stride_);
  }

  void Next() { set_ = set_ + 1 == sets_ ? 0 : set_ + 1; }

  float* operator[](size_t operand) {
    float* at = storage_.get() + set_ * stride_;
    for (size_t i = 0; i < operand; ++i) at += sizes_[i];
    return at;
  }

  // Zeros in one operand of every set.
  void Clear(size_t operand) {
    for (int64_t i = 0; i < sets_; ++i, Next()) {
      std::fill_n((*this)[operand], sizes_[operand], 0.0f);
    }
  }

 private:
  std::vector<int64_t> sizes_;
  OperandMemory::Loan storage_;
  int64_t stride_ = 0;
  int64_t sets_ = 0;
  int64_t set_ = 0;
};

// Runs `kernel(sets)` on the next set each time.
template <typename Kernel>
class OnOperands : public Workload {
 public:
  OnOperands(OperandSets sets, Kernel kernel)
      : sets_(std::move(sets)), kernel_(std::move(kernel)) {}
  void Run() override {
    sets_.Next();
    kernel_(sets_);
  }

 private:
  OperandSets sets_;
  Kernel kernel_;
};

template <typename Kernel>
std::unique_ptr<Workload> On(OperandSets sets, Kernel kernel) {
  return std::make_unique<OnOperands<Kernel>>(std::move(sets), std::move(kernel));
}

// What an op costs beside its kernel: the call, its start and end read from the clock, and the flag
// that others wait for.
class EmptyWorkload : public Workload {
 public:
  void Run() override {
    const auto begin = std::chrono::steady_clock::now();
    const auto end = std::chrono::steady_clock::now();
    last_ = end - begin;
    done_.fetch_add(1, std::memory_order_release);
  }

 private:
  std::chrono::steady_clock::duration last_{};
  std::atomic<int64_t> done_{0};
};

struct Prepare {
  Bytes cold;
  OperandMemory& memory;

  std::unique_ptr<Workload> operator()(const Gemm& g) const {
    OperandSets sets({g.m * g.k, g.k * g.n, g.m * g.n}, cold, memory);
    switch (g.use) {
      case Gemm::Use::kForward:
        return On(std::move(sets), [g](OperandSets& s) {
          cpu::LinearForward(Matrix(s[0], g.m, g.k), Matrix(s[1], g.k, g.n), nullptr,
                             Matrix(s[2], g.m, g.n));
        });
      case Gemm::Use::kInputGrad:  // dX [m x n] = dY [m x k] W^T, W [n x k]
        return On(std::move(sets), [g](OperandSets& s) {
          cpu::LinearInputGrad(Matrix(s[0], g.m, g.k), Matrix(s[1], g.n, g.k),
                               Matrix(s[2], g.m, g.n));
        });
      case Gemm::Use::kWeightGrad:  // dW [m x n] += X^T dY, X [k x m], dY [k x n]
        return On(std::move(sets), [g](OperandSets& s) {
          cpu::LinearWeightGrad(Matrix(s[0], g.k, g.m), Matrix(s[1], g.k, g.n),
                                Matrix(s[2], g.m, g.n), nullptr);
        });
    }
    return nullptr;
  }

  std::unique_ptr<Workload> operator()(const Attention& a) const {
    SPIRITLEVEL_CHECK(a.window == 0, "this attention has no window");
    const cpu::AttentionShape shape{.sequence = a.sequence,
                                    .heads = a.heads,
                                    .kv_heads = a.kv_heads,
                                    .head_dim = a.head_dim,
                                    .causal = a.causal};
    const int64_t q = a.batch * a.sequence * a.heads * a.head_dim;
    const int64_t kv = a.batch * a.sequence * a.kv_heads * a.head_dim;
    const int64_t sums = a.batch * a.sequence * a.heads;
    std::vector<float> workspace(static_cast<size_t>(cpu::AttentionWorkspace(shape)));
    OperandSets sets({q, kv, kv, q, sums, q, q, kv, kv}, cold, memory);
    const bool backward = a.backward;
    const int64_t batch = a.batch;
    return On(std::move(sets), [=](OperandSets& s) mutable {
      const int64_t t = shape.sequence;
      const int64_t wide = shape.heads * shape.head_dim;
      const int64_t narrow = shape.kv_heads * shape.head_dim;
      const auto at = [&](size_t operand, int64_t b, int64_t cols) {
        return Matrix(s[operand] + b * t * cols, t, cols);
      };
      for (int64_t b = 0; b < batch; ++b) {
        const std::span<float> lse(s[4] + b * t * shape.heads,
                                   static_cast<size_t>(t * shape.heads));
        if (backward) {
          cpu::AttentionBackward(shape, at(0, b, wide), at(1, b, narrow), at(2, b, narrow),
                                 at(3, b, wide), lse, at(5, b, wide), at(6, b, wide),
                                 at(7, b, narrow), at(8, b, narrow), workspace);
        } else {
          cpu::AttentionForward(shape, at(0, b, wide), at(1, b, narrow), at(2, b, narrow),
                                at(3, b, wide), lse, workspace);
        }
      }
    });
  }

  std::unique_ptr<Workload> operator()(const Norm& n) const {
    const int64_t size = n.rows * n.width;
    // Only what is used: a part of a set that is never touched does not displace the others.
    const bool forms_dx = n.part == Norm::Part::kBackward || n.part == Norm::Part::kInputGrad;
    OperandSets sets({size, size, forms_dx ? size : 0, n.width, n.width, n.rows}, cold, memory);
    return On(std::move(sets), [n](OperandSets& s) {
      const Matrix x(s[0], n.rows, n.width);
      const Matrix y(s[1], n.rows, n.width);
      if (n.part == Norm::Part::kForward) {
        cpu::RmsNormForward(x, s[3], 1e-5f, y, s[5]);
        return;
      }
      if (n.part != Norm::Part::kWeightGrad) {
        cpu::RmsNormInputGrad(x, s[3], s[5], y, Matrix(s[2], n.rows, n.width));
      }
      if (n.part != Norm::Part::kInputGrad) cpu::RmsNormWeightGrad(x, s[5], y, s[4]);
    });
  }

  // As SwiGLU's forward: two tensors in, one out.
  std::unique_ptr<Workload> operator()(const Elementwise& e) const {
    const int64_t size = std::max<int64_t>(1, e.bytes_moved / (3 * kFloat));
    return On(OperandSets({size, size, size}, cold, memory), [size](OperandSets& s) {
      cpu::SwigluForward(Matrix(s[0], 1, size), Matrix(s[1], 1, size), Matrix(s[2], 1, size));
    });
  }

  std::unique_ptr<Workload> operator()(const Embedding& e) const {
    // The table is as large as all sets together and each run asks for other rows of it.
    const int64_t vocabulary = std::max<int64_t>(1'024, cold / (e.width * kFloat));
    constexpr int64_t kTokens = 1 << 16;
    std::vector<int32_t> tokens(static_cast<size_t>(std::max(kTokens, e.tokens)));
    std::mt19937 random(7);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
    }
    return On(OperandSets({e.tokens * e.width}, cold, memory),
              [e, vocabulary, tokens = std::move(tokens), at = size_t{0},
               table_set = OperandSets({vocabulary * e.width}, 0, memory)](OperandSets& s) mutable {
                const auto count = static_cast<size_t>(e.tokens);
                at = at + 2 * count <= tokens.size() ? at + count : 0;
                const std::span<const int32_t> chosen = std::span(tokens).subspan(at, count);
                const Matrix table(table_set[0], vocabulary, e.width);
                const Matrix x(s[0], e.tokens, e.width);
                if (e.backward) {
                  cpu::EmbeddingWeightGrad(chosen, x, table);
                } else {
                  cpu::EmbeddingForward(chosen, table, x);
                }
              });
  }

  std::unique_ptr<Workload> operator()(const Loss& l) const {
    std::vector<int32_t> targets(static_cast<size_t>(l.tokens));
    std::mt19937 random(7);
    for (int32_t& target : targets) {
      target = static_cast<int32_t>(random() % static_cast<uint32_t>(l.vocabulary));
    }
    OperandSets sets({l.tokens * l.vocabulary, l.tokens, l.tokens}, cold, memory);
    return On(std::move(sets), [l, targets = std::move(targets)](OperandSets& s) {
      const Matrix logits(s[0], l.tokens, l.vocabulary);
      if (l.backward) {
        cpu::CrossEntropyBackward(targets, s[2], 1.0f / static_cast<float>(l.tokens), logits);
      } else {
        cpu::CrossEntropyForward(targets, logits, s[1], s[2]);
      }
    });
  }

  std::unique_ptr<Workload> operator()(const Kernel& kernel) const {
    return std::visit(*this, kernel);
  }

  std::unique_ptr<Workload> operator()(const OptimizerStep& step) const {
    const int64_t size = step.parameters;
    OperandSets sets({size, size, size, size}, cold, memory);
    sets.Clear(2);  // the moments; a second moment is never negative
    sets.Clear(3);
    return On(std::move(sets), [size, count = int64_t{0}](OperandSets& s) mutable {
      const auto array = [&](size_t i) {
        return std::span<float>(s[i], static_cast<size_t>(size));
      };
      const double squares = cpu::SumOfSquares(array(0));
      const float clip = cpu::ClipCoefficient(std::sqrt(squares), 1.0);
      cpu::AdamWStep({}, ++count, clip, array(0), array(1), array(2), array(3));
    });
  }

  std::unique_ptr<Workload> operator()(const EmptyOp&) const {
    return std::make_unique<EmptyWorkload>();
  }
};

}  // namespace

std::unique_ptr<Workload> MakeCpuWorkload(const Work& work, Bytes cold_bytes,
                                          OperandMemory& memory) {
  return std::visit(Prepare{cold_bytes, memory}, work);
}

}  // namespace spiritlevel
