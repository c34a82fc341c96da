// RMSNorm and LayerNorm, one row a block: formulas as in kernels/cpu/norm.h. What is read twice
// comes out of the cache the second time.
#pragma once

#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/block.h"
#include "kernels/cuda/math/rows.h"

namespace spiritlevel::cuda {

// The lane's part of a sum over a row: `term(col, count)` of each of its groups, which come in
// order.
template <typename Term>
SPIRITLEVEL_HOST_DEVICE float SumOfLane(int lane, int lanes, int64_t cols, const Term& term) {
  float sum = 0;
  for (int64_t col = int64_t{lane} * kGroup; col < cols; col += int64_t{lanes} * kGroup) {
    sum += term(col, CountAt(col, cols));
  }
  return sum;
}

// Calls `work(col, count)` for each group of a row.
template <typename Block, typename Work>
SPIRITLEVEL_HOST_DEVICE void EachGroupOfRow(const Block& block, int64_t cols, const Work& work) {
  block.Each([&](int lane) {
    for (int64_t col = int64_t{lane} * kGroup; col < cols; col += int64_t{block.lanes()} * kGroup) {
      work(col, CountAt(col, cols));
    }
  });
}

template <typename Block, typename Term>
SPIRITLEVEL_HOST_DEVICE float MeanOfRow(const Block& block, int64_t cols, const Term& term) {
  const float sum = block.Reduce(
      0.0f, [&](int lane) { return SumOfLane(lane, block.lanes(), cols, term); }, Plus());
  return sum / static_cast<float>(cols);
}

template <typename T>
struct RmsNormForwardRow {
  static constexpr size_t kSharedBytes = 0;

  Rows<const T> x;
  Rows<const T> weight;
  float epsilon;
  Rows<T> y;
  float* inverse_rms;
  int64_t cols;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t row) const {
    const float square = MeanOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      float sum = 0;
      for (int k = 0; k < kGroup; ++k) sum += in.at[k] * in.at[k];
      return sum;
    });
    const float r = 1 / std::sqrt(square + epsilon);
    EachGroupOfRow(block, cols, [&](int64_t col, int count) {
      Pack pack = x.Load(row, col, count);
      const Pack w = weight.Load(0, col, count);
      for (int k = 0; k < kGroup; ++k) pack.at[k] = w.at[k] * pack.at[k] * r;
      y.Store(row, col, count, pack);
      if (col == 0) inverse_rms[row] = r;
    });
  }
};

template <typename T>
struct RmsNormInputGradRow {
  static constexpr size_t kSharedBytes = 0;

  Rows<const T> x;
  Rows<const T> weight;
  const float* inverse_rms;
  Rows<const T> dy;
  Rows<T> dx;
  int64_t cols;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t row) const {
    const float dot = MeanOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      const Pack w = weight.Load(0, col, count);
      const Pack grad = dy.Load(row, col, count);
      float sum = 0;
      for (int k = 0; k < kGroup; ++k) sum += w.at[k] * grad.at[k] * in.at[k];
      return sum;
    });
    const float r = inverse_rms[row];
    const float pull = r * r * r * dot;
    EachGroupOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      const Pack w = weight.Load(0, col, count);
      Pack out = dy.Load(row, col, count);
      for (int k = 0; k < kGroup; ++k) out.at[k] = r * w.at[k] * out.at[k] - pull * in.at[k];
      dx.Store(row, col, count, out);
    });
  }
};

template <typename T>
struct LayerNormForwardRow {
  static constexpr size_t kSharedBytes = 0;

  Rows<const T> x;
  Rows<const T> weight;
  Rows<const T> bias;
  float epsilon;
  Rows<T> y;
  float* means;
  float* inverse_deviations;
  int64_t cols;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t row) const {
    const float m = MeanOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      float sum = 0;
      for (int k = 0; k < kGroup; ++k) sum += in.at[k];
      return sum;
    });
    // In a second pass: mean(x^2) - m^2 loses all digits where the mean is large.
    const float variance = MeanOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      float sum = 0;
      for (int k = 0; k < kGroup; ++k) sum += k < count ? (in.at[k] - m) * (in.at[k] - m) : 0.0f;
      return sum;
    });
    const float r = 1 / std::sqrt(variance + epsilon);
    EachGroupOfRow(block, cols, [&](int64_t col, int count) {
      Pack pack = x.Load(row, col, count);
      const Pack w = weight.Load(0, col, count);
      const Pack b = bias.Load(0, col, count);
      for (int k = 0; k < kGroup; ++k) pack.at[k] = w.at[k] * (pack.at[k] - m) * r + b.at[k];
      y.Store(row, col, count, pack);
      if (col == 0) {
        means[row] = m;
        inverse_deviations[row] = r;
      }
    });
  }
};

template <typename T>
struct LayerNormInputGradRow {
  static constexpr size_t kSharedBytes = 0;

  Rows<const T> x;
  Rows<const T> weight;
  const float* means;
  const float* inverse_deviations;
  Rows<const T> dy;
  Rows<T> dx;
  int64_t cols;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t row) const {
    const float m = means[row];
    const float r = inverse_deviations[row];
    const float mean_g = MeanOfRow(block, cols, [&](int64_t col, int count) {
      const Pack w = weight.Load(0, col, count);
      const Pack grad = dy.Load(row, col, count);
      float sum = 0;
      for (int k = 0; k < kGroup; ++k) sum += w.at[k] * grad.at[k];
      return sum;
    });
    const float mean_gz = MeanOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      const Pack w = weight.Load(0, col, count);
      const Pack grad = dy.Load(row, col, count);
      float sum = 0;
      for (int k = 0; k < kGroup; ++k) sum += w.at[k] * grad.at[k] * (in.at[k] - m) * r;
      return sum;
    });
    EachGroupOfRow(block, cols, [&](int64_t col, int count) {
      const Pack in = x.Load(row, col, count);
      const Pack w = weight.Load(0, col, count);
      Pack out = dy.Load(row, col, count);
      for (int k = 0; k < kGroup; ++k) {
        out.at[k] = r * (w.at[k] * out.at[k] - mean_g - (in.at[k] - m) * r * mean_gz);
      }
      dx.Store(row, col, count, out);
    });
  }
};

template <typename Grid>
void Compute(const RmsNormForward& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const RmsNormForwardRow<T> kernel{
        RowsOf<const T>(call.x), RowsOf<const T>(call.weight),          call.epsilon,
        RowsOf<T>(call.y),       RowsOf<float>(call.statistics).row(0), call.x.cols};
    grid(kernel, call.x.rows, LanesForRow(call.x.cols));
  });
}

template <typename Grid>
void Compute(const RmsNormInputGrad& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const RmsNormInputGradRow<T> kernel{RowsOf<const T>(call.x),
                                        RowsOf<const T>(call.weight),
                                        RowsOf<const float>(call.statistics).row(0),
                                        RowsOf<const T>(call.dy),
                                        RowsOf<T>(call.dx),
                                        call.x.cols};
    grid(kernel, call.x.rows, LanesForRow(call.x.cols));
  });
}

template <typename Grid>
void Compute(const LayerNormForward& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const Rows<float> statistics = RowsOf<float>(call.statistics);
    const LayerNormForwardRow<T> kernel{RowsOf<const T>(call.x),    RowsOf<const T>(call.weight),
                                        RowsOf<const T>(call.bias), call.epsilon,
                                        RowsOf<T>(call.y),          statistics.row(0),
                                        statistics.row(1),          call.x.cols};
    grid(kernel, call.x.rows, LanesForRow(call.x.cols));
  });
}

template <typename Grid>
void Compute(const LayerNormInputGrad& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const Rows<const float> statistics = RowsOf<const float>(call.statistics);
    const LayerNormInputGradRow<T> kernel{RowsOf<const T>(call.x),
                                          RowsOf<const T>(call.weight),
                                          statistics.row(0),
                                          statistics.row(1),
                                          RowsOf<const T>(call.dy),
                                          RowsOf<T>(call.dx),
                                          call.x.cols};
    grid(kernel, call.x.rows, LanesForRow(call.x.cols));
  });
}

}  // namespace spiritlevel::cuda
