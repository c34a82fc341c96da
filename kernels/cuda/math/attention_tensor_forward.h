// The forward of attention on tensor cores: bf16, sums and softmax in fp32.
//
// A block has a tile of queries, each warp some of its rows; tiles of keys and values pass through
// shared memory, the next one being copied while this one is computed with (Dao et al. 2022,
// algorithm 1, with the loops turned about: Dao 2023, algorithm 1).
#pragma once

#include "kernels/cuda/math/attention_arguments.h"
#include "kernels/cuda/math/attention_warp.h"

namespace spiritlevel::cuda {

template <int kDim>
struct TensorForward {
  using Tiles = typename TensorTiles<kDim>::Forward;
  static constexpr int kLanes = 32 * Tiles::kWarps;
  static constexpr int kRowTiles = Tiles::kRowTiles;
  static constexpr int kQueries = Tiles::kQueries;
  static constexpr int kKeys = Tiles::kKeys;
  using QueryMatrix = SharedMatrix<kQueries, kDim>;
  using KeyMatrix = SharedMatrix<kKeys, kDim>;
  static constexpr unsigned kSharedBytes = QueryMatrix::kBytes + 4 * KeyMatrix::kBytes;

  ForwardArguments<BFloat16> a;

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Machine& m, int block, int head, int batch) const {
    const int tile = QueryTileOf(a.g, block, TilesIn(a.g.sequence, kQueries));
    const int first = tile * kQueries;
    const int row = m.warp() * 16 * kRowTiles;  // the warp's first
    const int key_tiles = KeyTilesSeen(a.g, first, kQueries, kKeys);
    CopyRows<kLanes>(m, a.q.At(a.g, batch, head, 0), a.q.stride, first, a.g, queries());
    CopyKeys(m, batch, head, 0);
    m.CommitCopies();

    Accumulator<kRowTiles, kDim / 8> out;
    out.Clear();
    SoftmaxRow rows[kRowTiles][2];  // sums are of this lane's columns until the end
    for (int i = 0; i < key_tiles; ++i) {
      if (i + 1 < key_tiles) CopyKeys(m, batch, head, i + 1);
      m.CommitCopies();
      m.template AwaitCopies<1>();
      m.SyncBlock();
      const TileKind kind = KindOf(a.g, first + row, 16 * kRowTiles, i * kKeys, kKeys);
      if (kind != TileKind::kSkipped) Attend(m, kind, first, row, i, rows, &out);
      m.SyncBlock();  // the next copies go where these were
    }
    Finish(m, batch, head, first, row, rows, out);
  }

 private:
  SPIRITLEVEL_HOST_DEVICE static QueryMatrix queries() { return {0}; }
  SPIRITLEVEL_HOST_DEVICE static KeyMatrix keys(int stage) {
    return {QueryMatrix::kBytes + static_cast<unsigned>(stage) * 2 * KeyMatrix::kBytes};
  }
  SPIRITLEVEL_HOST_DEVICE static KeyMatrix values(int stage) {
    return {keys(stage).offset + KeyMatrix::kBytes};
  }

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void CopyKeys(const Machine& m, int batch, int head, int tile) const {
    const int kv_head = KeyHeadOf(a.g, head);
    const int key = tile * kKeys;
    CopyRows<kLanes>(m, a.k.At(a.g, batch, kv_head, 0), a.k.stride, key, a.g, keys(tile % 2));
    CopyRows<kLanes>(m, a.v.At(a.g, batch, kv_head, 0), a.v.stride, key, a.g, values(tile % 2));
  }

  // The warp's rows see tile `tile` of the keys, which has been copied.
  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void Attend(const Machine& m, TileKind kind, int first, int row, int tile,
                                      SoftmaxRow (&rows)[kRowTiles][2],
                                      Accumulator<kRowTiles, kDim / 8>* out) const {
    Accumulator<kRowTiles, kKeys / 8> scores;
    scores.Clear();
    MultiplyByRows(m, queries(), row, keys(tile % 2), &scores);
    if (kind == TileKind::kPartial) Mask(m, first + row, tile * kKeys, &scores);
    Fold(m, &scores, rows, out);
    Operand<kRowTiles, kKeys / 16> weights;
    ToOperand(m, scores, &weights);
    MultiplyByColumns(m, weights, values(tile % 2), 0, out);
  }

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void Mask(const Machine& m, int query, int key,
                                    Accumulator<kRowTiles, kKeys / 8>* scores) const {
    SPIRITLEVEL_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SPIRITLEVEL_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        SPIRITLEVEL_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (!Sees(a.g, query + 16 * r + RowOfNumber(m.lane(), i),
                    key + 8 * n + ColOfNumber(m.lane(), i))) {
            scores->at[r][n][i] = -Infinity();
          }
        }
      }
    }
  }

  // Scores become weights under the largest so far.
  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void Fold(const Machine& m, Accumulator<kRowTiles, kKeys / 8>* scores,
                                    SoftmaxRow (&rows)[kRowTiles][2],
                                    Accumulator<kRowTiles, kDim / 8>* out) const {
    const float scale_log2 = a.g.scale * kLog2E;
    SPIRITLEVEL_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SPIRITLEVEL_UNROLL
      for (int half = 0; half < 2; ++half) {
        SoftmaxRow& row = rows[r][half];
        float largest = -Infinity();
        SPIRITLEVEL_UNROLL
        for (int n = 0; n < kKeys / 8; ++n) {
          largest =
              Larger(largest, Larger(scores->at[r][n][2 * half], scores->at[r][n][2 * half + 1]));
        }
        largest = OverRowMates(m, largest, [](float x, float y) { return Larger(x, y); });
        const float shrink = RaiseLargest(&row, largest, scale_log2);
        const float shift = row.largest * scale_log2;
        SPIRITLEVEL_UNROLL
        for (int n = 0; n < kKeys / 8; ++n) {
          SPIRITLEVEL_UNROLL
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores->at[r][n][i] = WeightOf(scores->at[r][n][i], scale_log2, shift);
            row.sum += scores->at[r][n][i];
          }
        }
        SPIRITLEVEL_UNROLL
        for (int n = 0; n < kDim / 8; ++n) {
          out->at[r][n][2 * half] *= shrink;
          out->at[r][n][2 * half + 1] *= shrink;
        }
      }
    }
  }

  SPIRITLEVEL_HOST_DEVICE static float Larger(float x, float y) { return x > y ? x : y; }

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void Finish(const Machine& m, int batch, int head, int first, int row,
                                      SoftmaxRow (&rows)[kRowTiles][2],
                                      const Accumulator<kRowTiles, kDim / 8>& out) const {
    float factors[kRowTiles][2];
    float* const log_sum_exp = a.log_sum_exp.At(a.g, batch, head);
    SPIRITLEVEL_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      SPIRITLEVEL_UNROLL
      for (int half = 0; half < 2; ++half) {
        SoftmaxRow& of_row = rows[r][half];
        of_row.sum = OverRowMates(m, of_row.sum, [](float x, float y) { return x + y; });
        factors[r][half] = 1 / of_row.sum;
        const int query = first + row + 16 * r + RowOfNumber(m.lane(), 2 * half);
        if (m.lane() % 4 == 0 && query < a.g.sequence) {
          log_sum_exp[query] = LogSumExpOf(of_row, a.g.scale);
        }
      }
    }
    WriteRows(m, out, factors, queries(), row, a.out.At(a.g, batch, head, 0), a.out.stride,
              first + row, 0, a.g);
  }
};

}  // namespace spiritlevel::cuda
