// Work that is done element by element: in groups of 8 of one row, a few a lane.
#pragma once

#include "kernels/cuda/math/block.h"
#include "kernels/cuda/math/rows.h"

namespace spiritlevel::cuda {

// Rows and columns that are gone through. Where no operand has gaps between its rows, as one row.
struct Extent {
  int64_t rows;
  int64_t cols;
};

template <typename... Views>
Extent ExtentOf(const View& first, const Views&... others) {
  if (first.has_gaps() || (others.has_gaps() || ...)) return {first.rows, first.cols};
  return {1, first.rows * first.cols};
}

// Calls `work(row, col, count)` for each group.
template <typename Work>
struct Groups {
  static constexpr size_t kSharedBytes = 0;
  static constexpr int kGroupsOfLane = 2;  // blocks cost something to begin, too

  Work work;
  Extent extent;
  int64_t groups_of_row;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    block.Each([&](int lane) {
      for (int i = 0; i < kGroupsOfLane; ++i) {
        const int64_t group = (index * kGroupsOfLane + i) * block.lanes() + lane;
        if (group < extent.rows * groups_of_row) DoGroup(group);
      }
    });
  }

  SPIRITLEVEL_HOST_DEVICE void DoGroup(int64_t group) const {
    const int64_t row = RowOf(group);
    const int64_t col = (group - row * groups_of_row) * kGroup;
    work(row, col, CountAt(col, extent.cols));
  }

  // Divisions of 64 bits take a device longer than all else here.
  SPIRITLEVEL_HOST_DEVICE int64_t RowOf(int64_t group) const {
    if (extent.rows == 1) return 0;
    if (group > UINT32_MAX || groups_of_row > UINT32_MAX) return group / groups_of_row;
    return static_cast<uint32_t>(group) / static_cast<uint32_t>(groups_of_row);
  }
};

template <typename Work, typename Grid>
void RunGroups(const Work& work, Extent extent, const Grid& grid) {
  const int64_t groups_of_row = CeilDivide(extent.cols, kGroup);
  const int64_t of_block = int64_t{kElementwiseLanes} * Groups<Work>::kGroupsOfLane;
  grid(Groups<Work>{work, extent, groups_of_row}, CeilDivide(extent.rows * groups_of_row, of_block),
       kElementwiseLanes);
}

}  // namespace spiritlevel::cuda
