// Which tiles of an attention's scores there are, which of them are seen, and who computes them.
//
// The scores of one head are cut in tiles of some queries by some keys. A block of the forward, and
// one of the kernel that makes dQ, owns a tile of queries and goes through those of the keys; one
// of the kernel that makes dK and dV owns a tile of keys and goes through the queries of all heads
// that share it. So every sum belongs to one block, which adds in one order: no atomics (Dao 2023,
// section 3.2, has dQ summed by all blocks instead, and so in any order).
#pragma once

#include <cstdint>

#include "kernels/cuda/math/host_device.h"

namespace spiritlevel::cuda {

inline constexpr int kMostHeadDim = 256;

// An AttentionShape as a kernel takes it: 32 bits are what a device counts in.
struct AttentionGeometry {
  int batch;
  int sequence;
  int heads;
  int kv_heads;
  int head_dim;
  bool causal;
  float scale;

  SPIRITLEVEL_HOST_DEVICE constexpr int group() const { return heads / kv_heads; }
};

enum class TileKind : uint8_t {
  kSkipped,  // no query of it sees a key
  kPartial,  // some pairs are masked, or behind the end
  kFull,
};

SPIRITLEVEL_HOST_DEVICE constexpr bool Sees(const AttentionGeometry& g, int query, int key) {
  return key < g.sequence && (!g.causal || key <= query);
}

// Of queries query ... + queries - 1 and keys key ... + keys - 1. Queries behind the end count as
// if they were there.
SPIRITLEVEL_HOST_DEVICE constexpr TileKind KindOf(const AttentionGeometry& g, int query,
                                                  int queries, int key, int keys) {
  if (key >= g.sequence || (g.causal && key > query + queries - 1)) return TileKind::kSkipped;
  const bool all_seen = key + keys <= g.sequence && (!g.causal || key + keys - 1 <= query);
  return all_seen ? TileKind::kFull : TileKind::kPartial;
}

SPIRITLEVEL_HOST_DEVICE constexpr int TilesIn(int count, int of_tile) {
  return (count + of_tile - 1) / of_tile;
}

// Tiles of keys that are not skipped are the first so many.
SPIRITLEVEL_HOST_DEVICE constexpr int KeyTilesSeen(const AttentionGeometry& g, int query,
                                                   int queries, int keys) {
  const int all = TilesIn(g.sequence, keys);
  const int seen = TilesIn(query + queries, keys);
  return g.causal && seen < all ? seen : all;
}

// Tiles of queries that are not skipped begin at this one.
SPIRITLEVEL_HOST_DEVICE constexpr int FirstQueryTile(const AttentionGeometry& g, int key,
                                                     int queries) {
  return g.causal ? key / queries : 0;
}

// Under a causal mask the last tile of queries has the most to do, so it begins first; the short
// ones then fill what is left.
SPIRITLEVEL_HOST_DEVICE constexpr int QueryTileOf(const AttentionGeometry& g, int block,
                                                  int tiles) {
  return g.causal ? tiles - 1 - block : block;
}

// What a block of the plain kernels works on, from its number; tiles are innermost.
struct BlockPlace {
  int batch;
  int head;
  int tile;
};
SPIRITLEVEL_HOST_DEVICE constexpr BlockPlace PlaceOf(int64_t block, int heads, int tiles) {
  const int64_t head = block / tiles;
  return {static_cast<int>(head / heads), static_cast<int>(head % heads),
          static_cast<int>(block % tiles)};
}

// The query head `turn` of those that share key head `kv_head`, and back.
SPIRITLEVEL_HOST_DEVICE constexpr int QueryHeadOf(const AttentionGeometry& g, int kv_head,
                                                  int turn) {
  return kv_head * g.group() + turn;
}
SPIRITLEVEL_HOST_DEVICE constexpr int KeyHeadOf(const AttentionGeometry& g, int head) {
  return head / g.group();
}

// What a block that owns a tile of keys goes through: all tiles of queries from `first`, head by
// head.
struct QueryTurn {
  int head;
  int tile;
};
struct QueryTurns {
  int first;
  int tiles;

  SPIRITLEVEL_HOST_DEVICE constexpr int of_head() const { return tiles - first; }
  SPIRITLEVEL_HOST_DEVICE constexpr int count(const AttentionGeometry& g) const {
    return of_head() * g.group();
  }
  SPIRITLEVEL_HOST_DEVICE constexpr QueryTurn at(const AttentionGeometry& g, int kv_head,
                                                 int turn) const {
    return {QueryHeadOf(g, kv_head, turn / of_head()), first + turn % of_head()};
  }
};

// --- Sizes of tiles

// For plain arithmetic, by what fits a block's shared memory for the longest heads.
struct PlainTiles {
  struct Forward {
    static constexpr int kQueries = 32;
    static constexpr int kKeys = 32;
  };
  using BackwardQueries = Forward;
  struct BackwardKeys {
    static constexpr int kQueries = 32;
    static constexpr int kKeys = 16;  // dK and dV lie beside each other
  };
};

// For tensor cores; warps have rows by 16. `kDim`: head_dim, or the next that there is. Tiles are
// as large as a lane's 255 registers hold without spilling: the longer the heads, the smaller.
template <int kDim>
struct TensorTiles {
  static_assert(kDim % 16 == 0 && kDim <= kMostHeadDim);
  static constexpr bool kLong = kDim > 128;

  struct Forward {
    static constexpr int kWarps = 4;
    static constexpr int kRowTiles = kLong ? 1 : 2;  // of 16 rows, for each warp
    static constexpr int kQueries = 16 * kRowTiles * kWarps;
    static constexpr int kKeys = kDim > 96 ? 32 : kDim > 80 ? 48 : 64;
  };
  struct BackwardQueries {
    static constexpr int kWarps = kLong ? 4 : 8;
    static constexpr int kQueries = 16 * kWarps;
    static constexpr int kKeys = kLong ? 32 : 64;
  };
  struct BackwardKeys {
    static constexpr int kWarps = kLong ? 4 : 8;
    static constexpr int kKeys = 16 * kWarps;
    static constexpr int kQueries = kLong ? 32 : kDim > 96 ? 48 : 64;
    // dK and dV of 256 columns are more than a warp has registers for: two blocks make half each.
    static constexpr int kSlices = kLong ? 2 : 1;
    static constexpr int kCols = kDim / kSlices;
  };
};

// Calls f with an integral constant: the smallest dimension that has a kernel and is enough.
template <int kValue>
struct Dimension {
  static constexpr int value = kValue;
};
template <typename F>
void WithTensorDimension(int64_t head_dim, const F& f) {
  if (head_dim <= 64) return f(Dimension<64>());
  if (head_dim <= 80) return f(Dimension<80>());
  if (head_dim <= 96) return f(Dimension<96>());
  if (head_dim <= 128) return f(Dimension<128>());
  return f(Dimension<256>());
}

}  // namespace spiritlevel::cuda
