// The sum of squares in fp64, in two kernels: each of a fixed number of blocks sums its share of
// the groups, then one block sums theirs.
#pragma once

#include <algorithm>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

inline constexpr int64_t kMostPartialSums = 1024;

// By the number of elements alone.
inline int64_t NumPartialSums(int64_t elements) {
  return std::clamp<int64_t>(CeilDivide(elements, int64_t{kElementwiseLanes} * kGroup * 4), 1,
                             kMostPartialSums);
}

struct SquaresOfBlock {
  static constexpr size_t kSharedBytes = 0;

  Rows<const float> x;
  Extent extent;
  int64_t groups_of_row;
  int64_t blocks;
  double* partials;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const double sum = block.Reduce(
        0.0, [&](int lane) { return SumOfLane(index * block.lanes() + lane, block.lanes()); },
        Plus());
    block.Each([&](int lane) {
      if (lane == 0) partials[index] = sum;
    });
  }

  SPIRITLEVEL_HOST_DEVICE double SumOfLane(int64_t first, int lanes) const {
    double sum = 0;
    for (int64_t group = first; group < extent.rows * groups_of_row; group += blocks * lanes) {
      const int64_t row = extent.rows == 1 ? 0 : group / groups_of_row;
      const int64_t col = (group - row * groups_of_row) * kGroup;
      const Pack pack = x.Load(row, col, CountAt(col, extent.cols));
      for (int k = 0; k < kGroup; ++k) {
        sum += static_cast<double>(pack.at[k]) * static_cast<double>(pack.at[k]);
      }
    }
    return sum;
  }
};

struct AddPartialSums {
  static constexpr size_t kSharedBytes = 0;

  const double* partials;
  int64_t count;
  double* sum;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t /*index*/) const {
    const double total = block.Reduce(
        0.0,
        [&](int lane) {
          double of_lane = 0;
          for (int64_t i = lane; i < count; i += block.lanes()) of_lane += partials[i];
          return of_lane;
        },
        Plus());
    block.Each([&](int lane) {
      if (lane == 0) *sum = total;
    });
  }
};

template <typename Grid>
void Compute(const SumOfSquares& call, const Grid& grid) {
  const Extent extent = ExtentOf(call.x);
  const int64_t blocks = NumPartialSums(call.x.size());
  auto* const partials = static_cast<double*>(call.workspace.data);
  grid(SquaresOfBlock{RowsOf<const float>(call.x), extent, CeilDivide(extent.cols, kGroup), blocks,
                      partials},
       blocks, kElementwiseLanes);
  grid(AddPartialSums{partials, blocks, static_cast<double*>(call.sum.data)}, 1, kElementwiseLanes);
}

}  // namespace spiritlevel::cuda
