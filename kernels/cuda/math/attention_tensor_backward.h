// The backward of attention on tensor cores, in two kernels that make scores and weights again: one
// whose blocks own keys makes dK and dV, one whose blocks own queries makes dQ (Dao et al. 2022,
// algorithm 4, has one for all three). That is 7 products of a tile instead of 5, and no two blocks
// ever add to the same number.
//
// Each kernel makes scores with what its blocks own as rows, transposed for the keys. So P and dS
// come out of one product as operands of the next and never go through shared memory.
#pragma once

#include "kernels/cuda/math/attention_arguments.h"
#include "kernels/cuda/math/attention_warp.h"

namespace spiritlevel::cuda {

template <int kDim>
struct TensorBackwardQueries {
  using Tiles = typename TensorTiles<kDim>::BackwardQueries;
  static constexpr int kLanes = 32 * Tiles::kWarps;
  static constexpr int kQueries = Tiles::kQueries;
  static constexpr int kKeys = Tiles::kKeys;
  using QueryMatrix = SharedMatrix<kQueries, kDim>;
  using KeyMatrix = SharedMatrix<kKeys, kDim>;
  using Scores = Accumulator<1, kKeys / 8>;
  static constexpr unsigned kSharedBytes = 2 * QueryMatrix::kBytes + 4 * KeyMatrix::kBytes;

  BackwardArguments<BFloat16> a;

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Machine& m, int block, int head, int batch) const {
    const int first = QueryTileOf(a.g, block, TilesIn(a.g.sequence, kQueries)) * kQueries;
    const int row = m.warp() * 16;  // the warp's first
    const int key_tiles = KeyTilesSeen(a.g, first, kQueries, kKeys);
    CopyRows<kLanes>(m, a.q.At(a.g, batch, head, 0), a.q.stride, first, a.g, queries());
    CopyRows<kLanes>(m, a.dout.At(a.g, batch, head, 0), a.dout.stride, first, a.g, douts());
    CopyKeys(m, batch, head, 0);
    m.CommitCopies();

    const RowStatistics statistics = StatisticsOf(m, batch, head, first + row);
    Accumulator<1, kDim / 8> dq;
    dq.Clear();
    for (int i = 0; i < key_tiles; ++i) {
      if (i + 1 < key_tiles) CopyKeys(m, batch, head, i + 1);
      m.CommitCopies();
      m.template AwaitCopies<1>();
      m.SyncBlock();
      const TileKind kind = KindOf(a.g, first + row, 16, i * kKeys, kKeys);
      if (kind != TileKind::kSkipped) AddTile(m, kind, first, row, i, statistics, &dq);
      m.SyncBlock();  // the next copies go where these were
    }
    const float factors[1][2] = {{a.g.scale, a.g.scale}};
    WriteRows(m, dq, factors, queries(), row, a.dq.At(a.g, batch, head, 0), a.dq.stride,
              first + row, 0, a.g);
  }

 private:
  // Of the two rows of which a lane has numbers.
  struct RowStatistics {
    float shift[2];
    float delta[2];
  };

  SPIRITLEVEL_HOST_DEVICE static QueryMatrix queries() { return {0}; }
  SPIRITLEVEL_HOST_DEVICE static QueryMatrix douts() { return {QueryMatrix::kBytes}; }
  SPIRITLEVEL_HOST_DEVICE static KeyMatrix keys(int stage) {
    return {2 * QueryMatrix::kBytes + static_cast<unsigned>(stage) * 2 * KeyMatrix::kBytes};
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

  // Behind the end weights are 0.
  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE RowStatistics StatisticsOf(const Machine& m, int batch, int head,
                                                     int query) const {
    RowStatistics statistics;
    SPIRITLEVEL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = query + RowOfNumber(m.lane(), 2 * half);
      const bool is_there = i < a.g.sequence;
      statistics.shift[half] =
          is_there ? a.log_sum_exp.At(a.g, batch, head)[i] * kLog2E : Infinity();
      statistics.delta[half] = is_there ? a.delta.At(a.g, batch, head)[i] : 0;
    }
    return statistics;
  }

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void AddTile(const Machine& m, TileKind kind, int first, int row,
                                       int tile, const RowStatistics& statistics,
                                       Accumulator<1, kDim / 8>* dq) const {
    Scores weights;
    weights.Clear();
    MultiplyByRows(m, queries(), row, keys(tile % 2), &weights);
    const float scale_log2 = a.g.scale * kLog2E;
    SPIRITLEVEL_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      SPIRITLEVEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& number = weights.at[0][n][i];
        const bool seen =
            kind == TileKind::kFull || Sees(a.g, first + row + RowOfNumber(m.lane(), i),
                                            tile * kKeys + 8 * n + ColOfNumber(m.lane(), i));
        number = seen ? WeightOf(number, scale_log2, statistics.shift[i / 2]) : 0;
      }
    }
    Scores gradients;
    gradients.Clear();
    MultiplyByRows(m, douts(), row, values(tile % 2), &gradients);
    SPIRITLEVEL_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      SPIRITLEVEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        gradients.at[0][n][i] =
            ScoreGradient(weights.at[0][n][i], gradients.at[0][n][i], statistics.delta[i / 2]);
      }
    }
    Operand<1, kKeys / 16> operand;
    ToOperand(m, gradients, &operand);
    MultiplyByColumns(m, operand, keys(tile % 2), 0, dq);
  }
};

template <int kDim>
struct TensorBackwardKeys {
  using Tiles = typename TensorTiles<kDim>::BackwardKeys;
  static constexpr int kLanes = 32 * Tiles::kWarps;
  static constexpr int kQueries = Tiles::kQueries;
  static constexpr int kKeys = Tiles::kKeys;
  static constexpr int kSlices = Tiles::kSlices;
  using QueryMatrix = SharedMatrix<kQueries, kDim>;
  using KeyMatrix = SharedMatrix<kKeys, kDim>;
  using Scores = Accumulator<1, kQueries / 8>;  // rows are keys, columns queries
  using Sums = Accumulator<1, Tiles::kCols / 8>;
  static constexpr unsigned kFloatBytes = sizeof(float);
  static constexpr unsigned kMatrixBytes = 2 * KeyMatrix::kBytes + 4 * QueryMatrix::kBytes;
  static constexpr unsigned kSharedBytes = kMatrixBytes + 4 * kQueries * kFloatBytes;

  BackwardArguments<BFloat16> a;

  // `block`: a tile of keys, and a slice of their columns.
  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Machine& m, int block, int head, int batch) const {
    const int first = block / kSlices * kKeys;
    const int col = block % kSlices * Tiles::kCols;
    const int row = m.warp() * 16;  // the warp's first
    const QueryTurns turns{FirstQueryTile(a.g, first, kQueries), TilesIn(a.g.sequence, kQueries)};
    const int count = turns.count(a.g);
    CopyRows<kLanes>(m, a.k.At(a.g, batch, head, 0), a.k.stride, first, a.g, keys());
    CopyRows<kLanes>(m, a.v.At(a.g, batch, head, 0), a.v.stride, first, a.g, values());
    CopyQueries(m, batch, turns.at(a.g, head, 0), 0);
    m.CommitCopies();

    Sums dk;
    Sums dv;
    dk.Clear();
    dv.Clear();
    for (int i = 0; i < count; ++i) {
      if (i + 1 < count) CopyQueries(m, batch, turns.at(a.g, head, i + 1), (i + 1) % 2);
      m.CommitCopies();
      m.template AwaitCopies<1>();
      m.SyncBlock();
      const int query = turns.at(a.g, head, i).tile * kQueries;
      const TileKind kind = KindOf(a.g, query, kQueries, first + row, 16);
      if (kind != TileKind::kSkipped) AddTile(m, kind, query, first, row, col, i % 2, &dk, &dv);
      m.SyncBlock();  // the next copies go where these were
    }
    const float scales[1][2] = {{a.g.scale, a.g.scale}};
    const float ones[1][2] = {{1, 1}};
    WriteRows(m, dk, scales, keys(), row, a.dk.At(a.g, batch, head, 0), a.dk.stride, first + row,
              col, a.g);
    WriteRows(m, dv, ones, values(), row, a.dv.At(a.g, batch, head, 0), a.dv.stride, first + row,
              col, a.g);
  }

 private:
  struct alignas(8) Two {
    float at[2];
  };

  SPIRITLEVEL_HOST_DEVICE static KeyMatrix keys() { return {0}; }
  SPIRITLEVEL_HOST_DEVICE static KeyMatrix values() { return {KeyMatrix::kBytes}; }
  SPIRITLEVEL_HOST_DEVICE static QueryMatrix queries(int stage) {
    return {2 * KeyMatrix::kBytes + static_cast<unsigned>(stage) * 2 * QueryMatrix::kBytes};
  }
  SPIRITLEVEL_HOST_DEVICE static QueryMatrix douts(int stage) {
    return {queries(stage).offset + QueryMatrix::kBytes};
  }
  // Shifts of the tile's rows; their deltas are behind them.
  SPIRITLEVEL_HOST_DEVICE static unsigned statistics(int stage) {
    return kMatrixBytes + static_cast<unsigned>(stage) * 2 * kQueries * kFloatBytes;
  }

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void CopyQueries(const Machine& m, int batch, QueryTurn turn,
                                           int stage) const {
    const int query = turn.tile * kQueries;
    CopyRows<kLanes>(m, a.q.At(a.g, batch, turn.head, 0), a.q.stride, query, a.g, queries(stage));
    CopyRows<kLanes>(m, a.dout.At(a.g, batch, turn.head, 0), a.dout.stride, query, a.g,
                     douts(stage));
    float* const shifts = m.Numbers(statistics(stage));
    const int i = m.warp() * 32 + m.lane();
    if (i >= kQueries) return;
    const bool is_there = query + i < a.g.sequence;  // if not, weights are 0
    shifts[i] = is_there ? a.log_sum_exp.At(a.g, batch, turn.head)[query + i] * kLog2E : Infinity();
    shifts[kQueries + i] = is_there ? a.delta.At(a.g, batch, turn.head)[query + i] : 0;
  }

  template <typename Machine>
  SPIRITLEVEL_HOST_DEVICE void AddTile(const Machine& m, TileKind kind, int query, int first,
                                       int row, int col, int stage, Sums* dk, Sums* dv) const {
    const float* const shifts = m.Numbers(statistics(stage));
    const float* const deltas = shifts + kQueries;
    Scores weights;
    weights.Clear();
    MultiplyByRows(m, keys(), row, queries(stage), &weights);
    const float scale_log2 = a.g.scale * kLog2E;
    SPIRITLEVEL_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      const Two shift = NumbersAt(shifts, 8 * n + ColOfNumber(m.lane(), 0));
      SPIRITLEVEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& number = weights.at[0][n][i];
        const bool seen =
            kind == TileKind::kFull || Sees(a.g, query + 8 * n + ColOfNumber(m.lane(), i),
                                            first + row + RowOfNumber(m.lane(), i));
        number = seen ? WeightOf(number, scale_log2, shift.at[i % 2]) : 0;
      }
    }
    Operand<1, kQueries / 16> operand;
    ToOperand(m, weights, &operand);
    MultiplyByColumns(m, operand, douts(stage), col, dv);

    Scores gradients;
    gradients.Clear();
    MultiplyByRows(m, values(), row, douts(stage), &gradients);
    SPIRITLEVEL_UNROLL
    for (int n = 0; n < kQueries / 8; ++n) {
      const Two delta = NumbersAt(deltas, 8 * n + ColOfNumber(m.lane(), 0));
      SPIRITLEVEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        gradients.at[0][n][i] =
            ScoreGradient(weights.at[0][n][i], gradients.at[0][n][i], delta.at[i % 2]);
      }
    }
    ToOperand(m, gradients, &operand);
    MultiplyByColumns(m, operand, queries(stage), col, dk);
  }

  SPIRITLEVEL_HOST_DEVICE static Two NumbersAt(const float* numbers, int i) {
    return *reinterpret_cast<const Two*>(numbers + i);
  }
};

}  // namespace spiritlevel::cuda
