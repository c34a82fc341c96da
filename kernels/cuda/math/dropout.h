// Dropout with the masks of kernels/cpu/model/dropout.h: element i, row by row, takes word i % 4 of
// Philox's block i / 4.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

struct FourWords {
  uint32_t at[4];
};

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, section 3.3).
SPIRITLEVEL_HOST_DEVICE inline FourWords Philox(FourWords c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c.at[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c.at[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.at[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.at[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

template <typename T>
struct DropoutGroup {
  Rows<T> x;
  FourWords counter;  // its first word counts
  uint32_t key0;
  uint32_t key1;
  uint32_t dropped;  // words below it
  float factor;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    Pack pack = x.Load(row, col, count);
    for (int part = 0; part < kGroup / 4; ++part) {
      FourWords words = counter;
      words.at[0] = static_cast<uint32_t>(col / 4) + static_cast<uint32_t>(part);
      words = Philox(words, key0, key1);
      for (int k = 0; k < 4; ++k) {
        float& value = pack.at[4 * part + k];
        value = words.at[k] < dropped ? 0.0f : value * factor;
      }
    }
    x.Store(row, col, count, pack);
  }
};

template <typename Grid>
void Compute(const Dropout& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const double threshold = std::min(std::round(call.probability * 0x1p32), 0x1p32 - 1);
    const DropoutGroup<T> work{
        RowsOf<T>(call.x),
        {{0, static_cast<uint32_t>(4 * call.layer + call.place),
          static_cast<uint32_t>(call.micro_batch), static_cast<uint32_t>(call.iteration)}},
        static_cast<uint32_t>(call.seed),
        static_cast<uint32_t>(call.seed >> 32),
        static_cast<uint32_t>(threshold),
        static_cast<float>(1 / (1 - call.probability))};
    RunGroups(work, Extent{1, call.x.size()}, grid);
  });
}

}  // namespace spiritlevel::cuda
