// Cross-entropy, one row of logits a block, and read once: the largest so far and the sum of the
// exponentials below it go along together (Milakov and Gimelshein 2018, algorithm 3).
//
// A target that is neither in the vocabulary nor ignored is a fault of ours that a device cannot
// throw: its loss and gradients become NaN.
#pragma once

#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/norm.h"

namespace spiritlevel::cuda {

inline constexpr int32_t kIgnoredTarget = -1;

struct MaxAndSum {
  float largest;
  float sum;  // of exp(x - largest)
};

// Not minus infinity, which taken from itself is NaN.
SPIRITLEVEL_HOST_DEVICE inline MaxAndSum NothingYet() { return {-3.402823466e38f, 0.0f}; }

struct CombineMaxAndSum {
  SPIRITLEVEL_HOST_DEVICE MaxAndSum operator()(const MaxAndSum& a, const MaxAndSum& b) const {
    const float largest = a.largest > b.largest ? a.largest : b.largest;
    return {largest,
            a.sum * Exponential(a.largest - largest) + b.sum * Exponential(b.largest - largest)};
  }
};

SPIRITLEVEL_HOST_DEVICE inline void AddPack(const Pack& pack, int count, MaxAndSum* so_far) {
  float largest = so_far->largest;
  for (int k = 0; k < kGroup; ++k) {
    if (k < count && pack.at[k] > largest) largest = pack.at[k];
  }
  float sum = so_far->sum;
  if (largest > so_far->largest) sum *= Exponential(so_far->largest - largest);
  for (int k = 0; k < kGroup; ++k) {
    if (k < count) sum += Exponential(pack.at[k] - largest);
  }
  *so_far = {largest, sum};
}

template <typename T>
struct CrossEntropyForwardRow {
  static constexpr size_t kSharedBytes = 0;

  const int32_t* targets;
  Rows<const T> logits;
  float* losses;
  float* log_sum_exp;
  int64_t cols;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t row) const {
    const MaxAndSum total = block.Reduce(
        NothingYet(),
        [&](int lane) {
          MaxAndSum so_far = NothingYet();
          const int64_t step = int64_t{block.lanes()} * kGroup;
          for (int64_t col = int64_t{lane} * kGroup; col < cols; col += step) {
            const int count = CountAt(col, cols);
            AddPack(logits.Load(row, col, count), count, &so_far);
          }
          return so_far;
        },
        CombineMaxAndSum());
    block.Each([&](int lane) {
      if (lane == 0) Finish(row, total);
    });
  }

  SPIRITLEVEL_HOST_DEVICE void Finish(int64_t row, const MaxAndSum& total) const {
    const float log_sum = std::log(total.sum);
    const int32_t target = targets[row];
    log_sum_exp[row] = total.largest + log_sum;
    if (target == kIgnoredTarget) {
      losses[row] = 0;
    } else if (target < 0 || target >= cols) {
      losses[row] = NotANumber();
    } else {
      // Not log_sum_exp less the logit: large logits would eat the digits of a small loss.
      losses[row] = log_sum - (ToFloat(logits.row(row)[target]) - total.largest);
    }
  }
};

template <typename T>
struct CrossEntropyBackwardRow {
  static constexpr size_t kSharedBytes = 0;

  const int32_t* targets;
  const float* log_sum_exp;
  float scale;
  Rows<T> logits;
  int64_t cols;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t row) const {
    const int32_t target = targets[row];
    const bool counts = target != kIgnoredTarget;
    const bool known = target >= 0 && target < cols;
    const float factor = known ? scale : NotANumber();
    const float shift = log_sum_exp[row];
    EachGroupOfRow(block, cols, [&](int64_t col, int count) {
      Pack pack = {};
      if (counts) {
        pack = logits.Load(row, col, count);
        for (int k = 0; k < kGroup; ++k) {
          pack.at[k] = factor * Exponential(pack.at[k] - shift);
          if (col + k == target) pack.at[k] -= scale;
        }
      }
      logits.Store(row, col, count, pack);
    });
  }
};

template <typename Grid>
void Compute(const CrossEntropyForward& call, const Grid& grid) {
  WithStorage(call.logits.type, [&](auto element) {
    using T = decltype(element);
    const CrossEntropyForwardRow<T> kernel{
        static_cast<const int32_t*>(call.targets.data), RowsOf<const T>(call.logits),
        static_cast<float*>(call.losses.data), static_cast<float*>(call.log_sum_exp.data),
        call.logits.cols};
    grid(kernel, call.logits.rows, LanesForRow(call.logits.cols));
  });
}

template <typename Grid>
void Compute(const CrossEntropyBackward& call, const Grid& grid) {
  WithStorage(call.logits.type, [&](auto element) {
    using T = decltype(element);
    const CrossEntropyBackwardRow<T> kernel{static_cast<const int32_t*>(call.targets.data),
                                            static_cast<const float*>(call.log_sum_exp.data),
                                            call.scale, RowsOf<T>(call.logits), call.logits.cols};
    grid(kernel, call.logits.rows, LanesForRow(call.logits.cols));
  });
}

}  // namespace spiritlevel::cuda
