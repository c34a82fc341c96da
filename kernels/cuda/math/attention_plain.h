// Attention in plain arithmetic, tile by tile, for the blocks of block.h: on a device for fp32 and
// for views that tensor cores cannot take, on the host for everything. What is shared is sums;
// operands are read where they lie.
#pragma once

#include "kernels/cuda/math/attention_arguments.h"
#include "kernels/cuda/math/block.h"
#include "kernels/cuda/math/rows.h"

namespace spiritlevel::cuda {

inline constexpr int kPlainLanes = 256;

template <typename T>
SPIRITLEVEL_HOST_DEVICE float DotOf(const T* a, const T* b, int count) {
  float sum = 0;
  for (int d = 0; d < count; ++d) sum += ToFloat(a[d]) * ToFloat(b[d]);
  return sum;
}

template <typename T, typename Tiles>
struct PlainForward {
  static constexpr int kQueries = Tiles::kQueries;
  static constexpr int kKeys = Tiles::kKeys;
  struct Shared {
    float out[kQueries][kMostHeadDim];
    float scores[kQueries][kKeys];
    SoftmaxRow rows[kQueries];
    float shrink[kQueries];
  };
  static constexpr size_t kSharedBytes = sizeof(Shared);

  ForwardArguments<T> a;

  int64_t blocks() const {
    return int64_t{a.g.batch} * a.g.heads * TilesIn(a.g.sequence, kQueries);
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const int tiles = TilesIn(a.g.sequence, kQueries);
    BlockPlace place = PlaceOf(index, a.g.heads, tiles);
    place.tile = QueryTileOf(a.g, place.tile, tiles);
    const int first = place.tile * kQueries;
    const int rows = a.g.sequence - first < kQueries ? a.g.sequence - first : kQueries;
    auto* const shared = static_cast<Shared*>(block.shared());
    block.Each([&](int lane) { Clear(block, lane, shared); });
    const int key_tiles = KeyTilesSeen(a.g, first, kQueries, kKeys);
    for (int tile = 0; tile < key_tiles; ++tile) {
      const int key = tile * kKeys;
      block.Each([&](int lane) { Score(block, lane, place, first, rows, key, shared); });
      block.Each([&](int lane) {
        for (int i = lane; i < rows; i += block.lanes()) Fold(i, shared);
      });
      block.Each([&](int lane) { Sum(block, lane, place, rows, key, shared); });
    }
    block.Each([&](int lane) { Store(block, lane, place, first, rows, *shared); });
  }

 private:
  SPIRITLEVEL_HOST_DEVICE float scale_log2() const { return a.g.scale * kLog2E; }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Clear(const Block& block, int lane, Shared* shared) const {
    for (int i = lane; i < kQueries; i += block.lanes()) shared->rows[i] = SoftmaxRow();
    for (int at = lane; at < kQueries * a.g.head_dim; at += block.lanes()) {
      shared->out[at / a.g.head_dim][at % a.g.head_dim] = 0;
    }
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Score(const Block& block, int lane, BlockPlace place, int first,
                                     int rows, int key, Shared* shared) const {
    const int kv_head = KeyHeadOf(a.g, place.head);
    for (int at = lane; at < rows * kKeys; at += block.lanes()) {
      const int i = at / kKeys;
      const int j = at % kKeys;
      shared->scores[i][j] = Sees(a.g, first + i, key + j)
                                 ? DotOf(a.q.At(a.g, place.batch, place.head, first + i),
                                         a.k.At(a.g, place.batch, kv_head, key + j), a.g.head_dim)
                                 : -Infinity();
    }
  }

  // Scores become weights under the largest so far.
  SPIRITLEVEL_HOST_DEVICE void Fold(int i, Shared* shared) const {
    float* const scores = shared->scores[i];
    SoftmaxRow row = shared->rows[i];
    float largest = scores[0];
    for (int j = 1; j < kKeys; ++j) largest = scores[j] > largest ? scores[j] : largest;
    shared->shrink[i] = RaiseLargest(&row, largest, scale_log2());
    const float shift = row.largest * scale_log2();
    for (int j = 0; j < kKeys; ++j) {
      const float weight = WeightOf(scores[j], scale_log2(), shift);
      row.sum += weight;
      scores[j] = AsOperand<T>(weight);
    }
    shared->rows[i] = row;
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Sum(const Block& block, int lane, BlockPlace place, int rows,
                                   int key, Shared* shared) const {
    const int keys = a.g.sequence - key < kKeys ? a.g.sequence - key : kKeys;
    const T* const values = a.v.At(a.g, place.batch, KeyHeadOf(a.g, place.head), key);
    for (int at = lane; at < rows * a.g.head_dim; at += block.lanes()) {
      const int i = at / a.g.head_dim;
      const int d = at % a.g.head_dim;
      float sum = shared->out[i][d] * shared->shrink[i];
      for (int j = 0; j < keys; ++j)
        sum += shared->scores[i][j] * ToFloat(values[j * a.v.stride + d]);
      shared->out[i][d] = sum;
    }
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Store(const Block& block, int lane, BlockPlace place, int first,
                                     int rows, const Shared& shared) const {
    for (int at = lane; at < rows * a.g.head_dim; at += block.lanes()) {
      const int i = at / a.g.head_dim;
      const int d = at % a.g.head_dim;
      a.out.At(a.g, place.batch, place.head, first + i)[d] =
          FromFloat<T>(shared.out[i][d] * (1 / shared.rows[i].sum));
    }
    float* const sums = a.log_sum_exp.At(a.g, place.batch, place.head);
    for (int i = lane; i < rows; i += block.lanes()) {
      sums[first + i] = LogSumExpOf(shared.rows[i], a.g.scale);
    }
  }
};

// delta = rowsum(dOut out), by 8 lanes for each row.
template <typename T>
struct RowDots {
  static constexpr int kLanesOfRow = 8;
  static constexpr int kRows = kPlainLanes / kLanesOfRow;
  static constexpr size_t kSharedBytes = sizeof(float) * kPlainLanes;

  BackwardArguments<T> a;

  int64_t blocks() const { return int64_t{a.g.batch} * a.g.heads * TilesIn(a.g.sequence, kRows); }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const BlockPlace place = PlaceOf(index, a.g.heads, TilesIn(a.g.sequence, kRows));
    const int first = place.tile * kRows;
    auto* const parts = static_cast<float*>(block.shared());
    block.Each([&](int lane) {
      const int token = first + lane / kLanesOfRow;
      parts[lane] = token < a.g.sequence ? Part(place, token, lane % kLanesOfRow) : 0;
    });
    block.Each([&](int lane) {
      if (lane >= kRows || first + lane >= a.g.sequence) return;
      float sum = 0;
      for (int i = 0; i < kLanesOfRow; ++i) sum += parts[lane * kLanesOfRow + i];
      a.delta.At(a.g, place.batch, place.head)[first + lane] = sum;
    });
  }

  // Eight adjacent elements in turn.
  SPIRITLEVEL_HOST_DEVICE float Part(BlockPlace place, int token, int lane) const {
    const Rows<const T> dout = RowAt(a.dout.At(a.g, place.batch, place.head, token));
    const Rows<const T> out = RowAt(a.out.At(a.g, place.batch, place.head, token));
    float sum = 0;
    for (int d = lane * kGroup; d < a.g.head_dim; d += kLanesOfRow * kGroup) {
      const int count = CountAt(d, a.g.head_dim);
      const Pack x = dout.Load(0, d, count);
      const Pack y = out.Load(0, d, count);
      for (int k = 0; k < kGroup; ++k) sum += x.at[k] * y.at[k];
    }
    return sum;
  }
  SPIRITLEVEL_HOST_DEVICE static Rows<const T> RowAt(const T* row) {
    constexpr auto kAlignment = alignof(typename Rows<const T>::Whole);
    return {row, 0, reinterpret_cast<uintptr_t>(row) % kAlignment == 0};
  }
};

// P and dS of a tile, made again: what both kernels of backward begin with.
template <typename T, int kQueries, int kKeys>
struct PlainGradients {
  float weights[kQueries][kKeys];
  float gradients[kQueries][kKeys];

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Make(const Block& block, int lane, const BackwardArguments<T>& a,
                                    int batch, int head, int query, int key) {
    const AttentionGeometry& g = a.g;
    const int kv_head = KeyHeadOf(g, head);
    for (int at = lane; at < kQueries * kKeys; at += block.lanes()) {
      const int i = at / kKeys;
      const int j = at % kKeys;
      float weight = 0;
      float gradient = 0;
      if (query + i < g.sequence && Sees(g, query + i, key + j)) {
        const float score = DotOf(a.q.At(g, batch, head, query + i),
                                  a.k.At(g, batch, kv_head, key + j), g.head_dim);
        weight =
            WeightOf(score, g.scale * kLog2E, a.log_sum_exp.At(g, batch, head)[query + i] * kLog2E);
        gradient = ScoreGradient(weight,
                                 DotOf(a.dout.At(g, batch, head, query + i),
                                       a.v.At(g, batch, kv_head, key + j), g.head_dim),
                                 a.delta.At(g, batch, head)[query + i]);
      }
      weights[i][j] = AsOperand<T>(weight);
      gradients[i][j] = AsOperand<T>(gradient);
    }
  }
};

// dQ = scale dS K.
template <typename T, typename Tiles>
struct PlainBackwardQueries {
  static constexpr int kQueries = Tiles::kQueries;
  static constexpr int kKeys = Tiles::kKeys;
  struct Shared {
    float dq[kQueries][kMostHeadDim];
    PlainGradients<T, kQueries, kKeys> tile;
  };
  static constexpr size_t kSharedBytes = sizeof(Shared);

  BackwardArguments<T> a;

  int64_t blocks() const {
    return int64_t{a.g.batch} * a.g.heads * TilesIn(a.g.sequence, kQueries);
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const int tiles = TilesIn(a.g.sequence, kQueries);
    BlockPlace place = PlaceOf(index, a.g.heads, tiles);
    place.tile = QueryTileOf(a.g, place.tile, tiles);
    const int first = place.tile * kQueries;
    const int rows = a.g.sequence - first < kQueries ? a.g.sequence - first : kQueries;
    auto* const shared = static_cast<Shared*>(block.shared());
    const int key_tiles = KeyTilesSeen(a.g, first, kQueries, kKeys);
    for (int tile = 0; tile < key_tiles; ++tile) {
      const int key = tile * kKeys;
      block.Each([&](int lane) {
        shared->tile.Make(block, lane, a, place.batch, place.head, first, key);
      });
      block.Each([&](int lane) { Sum(block, lane, place, rows, key, shared); });
    }
    block.Each([&](int lane) {
      for (int at = lane; at < rows * a.g.head_dim; at += block.lanes()) {
        const int i = at / a.g.head_dim;
        const int d = at % a.g.head_dim;
        a.dq.At(a.g, place.batch, place.head, first + i)[d] =
            FromFloat<T>(shared->dq[i][d] * a.g.scale);
      }
    });
  }

 private:
  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Sum(const Block& block, int lane, BlockPlace place, int rows,
                                   int key, Shared* shared) const {
    const int keys = a.g.sequence - key < kKeys ? a.g.sequence - key : kKeys;
    const T* const k = a.k.At(a.g, place.batch, KeyHeadOf(a.g, place.head), key);
    for (int at = lane; at < rows * a.g.head_dim; at += block.lanes()) {
      const int i = at / a.g.head_dim;
      const int d = at % a.g.head_dim;
      float sum = key == 0 ? 0 : shared->dq[i][d];
      for (int j = 0; j < keys; ++j)
        sum += shared->tile.gradients[i][j] * ToFloat(k[j * a.k.stride + d]);
      shared->dq[i][d] = sum;
    }
  }
};

// dV = P^T dOut and dK = scale dS^T Q.
template <typename T, typename Tiles>
struct PlainBackwardKeys {
  static constexpr int kQueries = Tiles::kQueries;
  static constexpr int kKeys = Tiles::kKeys;
  struct Shared {
    float dk[kKeys][kMostHeadDim];
    float dv[kKeys][kMostHeadDim];
    PlainGradients<T, kQueries, kKeys> tile;
  };
  static constexpr size_t kSharedBytes = sizeof(Shared);

  BackwardArguments<T> a;

  int64_t blocks() const {
    return int64_t{a.g.batch} * a.g.kv_heads * TilesIn(a.g.sequence, kKeys);
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const BlockPlace place = PlaceOf(index, a.g.kv_heads, TilesIn(a.g.sequence, kKeys));
    const int first = place.tile * kKeys;
    auto* const shared = static_cast<Shared*>(block.shared());
    block.Each([&](int lane) {
      for (int at = lane; at < kKeys * a.g.head_dim; at += block.lanes()) {
        shared->dk[at / a.g.head_dim][at % a.g.head_dim] = 0;
        shared->dv[at / a.g.head_dim][at % a.g.head_dim] = 0;
      }
    });
    const QueryTurns turns{FirstQueryTile(a.g, first, kQueries), TilesIn(a.g.sequence, kQueries)};
    for (int i = 0; i < turns.count(a.g); ++i) {
      const QueryTurn turn = turns.at(a.g, place.head, i);
      const int query = turn.tile * kQueries;
      block.Each([&](int lane) {
        shared->tile.Make(block, lane, a, place.batch, turn.head, query, first);
      });
      block.Each([&](int lane) { Sum(block, lane, place.batch, turn.head, query, shared); });
    }
    block.Each([&](int lane) { Store(block, lane, place, first, *shared); });
  }

 private:
  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Sum(const Block& block, int lane, int batch, int head, int query,
                                   Shared* shared) const {
    const int queries = a.g.sequence - query < kQueries ? a.g.sequence - query : kQueries;
    const T* const q = a.q.At(a.g, batch, head, query);
    const T* const dout = a.dout.At(a.g, batch, head, query);
    for (int at = lane; at < kKeys * a.g.head_dim; at += block.lanes()) {
      const int j = at / a.g.head_dim;
      const int d = at % a.g.head_dim;
      float dk = shared->dk[j][d];
      float dv = shared->dv[j][d];
      for (int i = 0; i < queries; ++i) {
        dk += shared->tile.gradients[i][j] * ToFloat(q[i * a.q.stride + d]);
        dv += shared->tile.weights[i][j] * ToFloat(dout[i * a.dout.stride + d]);
      }
      shared->dk[j][d] = dk;
      shared->dv[j][d] = dv;
    }
  }

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void Store(const Block& block, int lane, BlockPlace place, int first,
                                     const Shared& shared) const {
    for (int at = lane; at < kKeys * a.g.head_dim; at += block.lanes()) {
      const int j = at / a.g.head_dim;
      const int d = at % a.g.head_dim;
      if (first + j >= a.g.sequence) return;
      a.dk.At(a.g, place.batch, place.head, first + j)[d] =
          FromFloat<T>(shared.dk[j][d] * a.g.scale);
      a.dv.At(a.g, place.batch, place.head, first + j)[d] = FromFloat<T>(shared.dv[j][d]);
    }
  }
};

template <typename Kernel, typename Grid>
void RunPlain(const Kernel& kernel, const Grid& grid) {
  grid(kernel, kernel.blocks(), kPlainLanes);
}

}  // namespace spiritlevel::cuda
