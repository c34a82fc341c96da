// Rotary positions, as in kernels/cpu/model/rotation.h.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

// A group is 8 elements of the first half of one head, and the 8 that are half a head further.
template <typename T>
struct RotateGroup {
  Rows<const float> table;
  Rows<T> x;
  int64_t sequence;
  int64_t half;
  int groups_of_half;
  float sign;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int /*count*/) const {
    const auto group = static_cast<uint32_t>(col / kGroup);
    const uint32_t head = group / static_cast<uint32_t>(groups_of_half);
    const int64_t begin = int64_t{kGroup} * (group - head * static_cast<uint32_t>(groups_of_half));
    const int count = CountAt(begin, half);
    const int64_t first = head * 2 * half + begin;
    const int64_t position = row % sequence;
    const Pack cosine = table.Load(position, begin, count);
    const Pack sine = table.Load(sequence + position, begin, count);
    Pack a = x.Load(row, first, count);
    Pack b = x.Load(row, first + half, count);
    for (int k = 0; k < kGroup; ++k) {
      const float turned = a.at[k] * cosine.at[k] - sign * b.at[k] * sine.at[k];
      b.at[k] = b.at[k] * cosine.at[k] + sign * a.at[k] * sine.at[k];
      a.at[k] = turned;
    }
    x.Store(row, first, count, a);
    x.Store(row, first + half, count, b);
  }
};

template <typename Grid>
void Compute(const Rotate& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const int64_t half = call.head_dim / 2;
    const int64_t groups_of_half = CeilDivide(half, kGroup);
    Rows<T> x = RowsOf<T>(call.x);
    x.aligned = x.aligned && half % kGroup == 0;
    const RotateGroup<T> work{RowsOf<const float>(call.table),
                              x,
                              call.table.rows / 2,
                              half,
                              static_cast<int>(groups_of_half),
                              call.back ? -1.0f : 1.0f};
    RunGroups(work, Extent{call.x.rows, call.x.cols / call.head_dim * groups_of_half * kGroup},
              grid);
  });
}

}  // namespace spiritlevel::cuda
