#include "tests/kernels/model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/model/philox.h"

namespace spiritlevel {
namespace {

using cpu::MlpKind;
using cpu::ModelShape;

// Rows of `cols`.
struct Table {
  int64_t rows = 0;
  int64_t cols = 0;
  Doubles values = Doubles(static_cast<size_t>(rows * cols), 0.0);

  double& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * cols + j)]; }
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * cols + j)]; }
};

class Forward {
 public:
  Forward(const ModelShape& shape, const NamedValues& parameters, const ReferenceBatch& batch)
      : s_(shape), parameters_(parameters), batch_(batch) {}

  Doubles Losses() {
    Table x{s_.tokens(), s_.hidden};
    const Doubles& table = parameters_.at("embedding.weight");
    for (int64_t i = 0; i < s_.tokens(); ++i) {
      for (int64_t j = 0; j < s_.hidden; ++j) {
        x.at(i, j) = table[static_cast<size_t>(batch_.tokens[i] * s_.hidden + j)];
      }
    }
    Drop(0, 0, &x);
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".";
      Table a = Attention(name, Norm(name + "attention.norm", x));
      Drop(layer, 1, &a);
      AddTo(a, &x);
      const Table n = Norm(name + "mlp.norm", x);
      Table m = s_.is_mixture() ? Mixture(name, n) : Mlp(name + "mlp.", n);
      Drop(layer, 2, &m);
      AddTo(m, &x);
    }
    return CrossEntropy(Norm("head.norm", x));
  }

 private:
  static void AddTo(const Table& change, Table* x) {
    for (size_t i = 0; i < x->values.size(); ++i) x->values[i] += change.values[i];
  }

  void Drop(int64_t layer, uint32_t place, Table* x) const {
    if (s_.dropout == 0) return;
    for (size_t i = 0; i < x->values.size(); ++i) {
      const cpu::PhiloxCounter words = cpu::Philox(
          {static_cast<uint32_t>(i / 4), static_cast<uint32_t>(4 * layer) + place,
           static_cast<uint32_t>(batch_.index), static_cast<uint32_t>(batch_.iteration)},
          cpu::KeyOf(s_.seed));
      const bool dropped = words[i % 4] < s_.dropout * 0x1p32;
      x->values[i] = dropped ? 0 : x->values[i] / (1 - s_.dropout);
    }
  }

  Table Norm(const std::string& name, const Table& x) const {
    const Doubles& weight = parameters_.at(name + ".weight");
    const bool centred = s_.norm == cpu::NormKind::kLayer;
    Table y{x.rows, x.cols};
    for (int64_t i = 0; i < x.rows; ++i) {
      double mean = 0;
      double square = 0;
      for (int64_t j = 0; j < x.cols; ++j) mean += x.at(i, j) / static_cast<double>(x.cols);
      if (!centred) mean = 0;
      for (int64_t j = 0; j < x.cols; ++j) square += std::pow(x.at(i, j) - mean, 2);
      const double scale = 1 / std::sqrt(square / static_cast<double>(x.cols) +
                                         static_cast<double>(s_.norm_epsilon));
      for (int64_t j = 0; j < x.cols; ++j) {
        y.at(i, j) = weight[static_cast<size_t>(j)] * (x.at(i, j) - mean) * scale;
        if (centred) y.at(i, j) += parameters_.at(name + ".bias")[static_cast<size_t>(j)];
      }
    }
    return y;
  }

  Table Linear(const std::string& name, const Table& x, int64_t out) const {
    Table y{x.rows, out, Product(x.values, parameters_.at(name + ".weight"), x.rows, out, x.cols)};
    const auto bias = parameters_.find(name + ".bias");
    if (bias == parameters_.end()) return y;
    for (int64_t i = 0; i < y.rows; ++i) {
      for (int64_t j = 0; j < out; ++j) y.at(i, j) += bias->second[static_cast<size_t>(j)];
    }
    return y;
  }

  // Turns `heads` heads from column `begin`.
  void Rotate(int64_t begin, int64_t heads, Table* x) const {
    const int64_t d = s_.head_dim;
    for (int64_t i = 0; i < x->rows; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t j = 0; j < d / 2; ++j) {
          const double angle =
              static_cast<double>(i % s_.sequence) *
              std::pow(s_.rope_theta, -2 * static_cast<double>(j) / static_cast<double>(d));
          double& a = x->at(i, begin + h * d + j);
          double& b = x->at(i, begin + h * d + j + d / 2);
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
    }
  }

  void Attend(const Table& qkv, int64_t row, int64_t head, Table* out) const {
    const int64_t d = s_.head_dim;
    const int64_t first = row / s_.sequence * s_.sequence;
    const int64_t key = s_.q_width() + head / (s_.heads / s_.kv_heads) * d;
    Doubles weights;
    for (int64_t other = first; other <= row; ++other) {
      double score = 0;
      for (int64_t j = 0; j < d; ++j) score += qkv.at(row, head * d + j) * qkv.at(other, key + j);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (int64_t other = first; other <= row; ++other) {
      for (int64_t j = 0; j < d; ++j) {
        out->at(row, head * d + j) += weights[static_cast<size_t>(other - first)] / sum *
                                      qkv.at(other, key + s_.kv_width() + j);
      }
    }
  }

  Table Attention(const std::string& name, const Table& x) const {
    Table qkv = Linear(name + "attention.qkv", x, s_.qkv_width());
    Rotate(0, s_.heads + s_.kv_heads, &qkv);
    Table out{x.rows, s_.q_width()};
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t head = 0; head < s_.heads; ++head) Attend(qkv, row, head, &out);
    }
    return Linear(name + "attention.output", out, s_.hidden);
  }

  Table Mlp(const std::string& name, const Table& x) const {
    const Table up = Linear(name + "up", x, s_.up_width());
    Table act{x.rows, s_.intermediate};
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t j = 0; j < s_.intermediate; ++j) {
        const double a = up.at(i, j);
        if (s_.mlp == MlpKind::kGelu) {
          act.at(i, j) =
              a / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * std::pow(a, 3))));
        } else {
          act.at(i, j) = a / (1 + std::exp(-a)) * up.at(i, j + s_.intermediate);
        }
      }
    }
    return Linear(name + "down", act, s_.hidden);
  }

  Table Mixture(const std::string& name, const Table& x) const {
    Table router = Linear(name + "mlp.router", x, s_.experts);
    std::vector<std::vector<int64_t>> ranked;  // by token, experts by what they get
    for (int64_t i = 0; i < x.rows; ++i) {
      double sum = 0;
      for (int64_t e = 0; e < s_.experts; ++e) sum += std::exp(router.at(i, e));
      for (int64_t e = 0; e < s_.experts; ++e) router.at(i, e) = std::exp(router.at(i, e)) / sum;
      std::vector<int64_t> experts(static_cast<size_t>(s_.experts));
      std::iota(experts.begin(), experts.end(), 0);
      std::ranges::stable_sort(
          experts, [&](int64_t a, int64_t b) { return router.at(i, a) > router.at(i, b); });
      ranked.push_back(std::move(experts));
    }
    Table y{x.rows, s_.hidden};
    std::vector<Table> results;
    for (int64_t e = 0; e < s_.experts; ++e) {
      results.push_back(Mlp(name + "mlp.experts." + std::to_string(e) + ".", x));
    }
    std::vector<int64_t> taken(static_cast<size_t>(s_.experts), 0);
    for (int64_t choice = 0; choice < s_.top_k; ++choice) {
      for (int64_t i = 0; i < x.rows; ++i) {
        const int64_t e = ranked[static_cast<size_t>(i)][static_cast<size_t>(choice)];
        if (++taken[static_cast<size_t>(e)] > cpu::CapacityOf(s_)) continue;
        for (int64_t j = 0; j < s_.hidden; ++j) {
          y.at(i, j) += router.at(i, e) * results[static_cast<size_t>(e)].at(i, j);
        }
      }
    }
    return y;
  }

  Doubles CrossEntropy(const Table& x) const {
    const Doubles& head = parameters_.at("head.weight");
    Doubles losses;
    for (int64_t i = 0; i < x.rows; ++i) {
      Doubles logits;
      for (int64_t v = 0; v < s_.vocabulary; ++v) {
        double logit = 0;
        for (int64_t j = 0; j < s_.hidden; ++j) {
          logit += x.at(i, j) * head[static_cast<size_t>(v * s_.hidden + j)];
        }
        logits.push_back(logit);
      }
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      const int32_t target = batch_.targets[static_cast<size_t>(i)];
      losses.push_back(target < 0 ? 0 : std::log(sum) - logits[static_cast<size_t>(target)]);
    }
    return losses;
  }

  const ModelShape& s_;
  const NamedValues& parameters_;
  const ReferenceBatch& batch_;
};

}  // namespace

Doubles ReferenceLosses(const ModelShape& shape, const NamedValues& parameters,
                        const ReferenceBatch& batch) {
  return Forward(shape, parameters, batch).Losses();
}

}  // namespace spiritlevel
