// What a warp does with matrices: products, and moving them in and out.
//
// Written for a Machine, one lane's view of what it runs on: a device (attention_machine.cuh), or
// the tests' emulation, whose lanes take turns. Everything but the arithmetic between lanes is
// ordinary code in both, so that indices, masks and the pipeline of copies are tested without a
// GPU.
//
//   lane(), warp()                       of 32, and of the block
//   SyncBlock(), SyncWarp()              what was written before is seen behind
//   CopyLater(to, from, valid)           16 bytes to shared memory, zeros if not valid
//   CommitCopies(), AwaitCopies<n>()     all but the last n commits of this lane are there
//   LoadMatrices(r, at)                  ldmatrix.x4, and with .trans:
//   LoadTransposed(r, at)
//   MultiplyAdd(c, a, b0, b1)            c += a b, m16n8k16
//   Pair(low, high)                      two numbers as bf16
//   Other(value, apart)                  that of the lane which differs by `apart`
//   Store(at, pair), Load(at), Numbers(at)      shared memory; offsets are bytes
//   StoreGlobal(to, chunk)               16 bytes
#pragma once

#include "kernels/cuda/math/attention_matrices.h"
#include "kernels/cuda/math/attention_softmax.h"

#ifdef __CUDA_ARCH__
#define SPIRITLEVEL_UNROLL _Pragma("unroll")
#define SPIRITLEVEL_NO_UNROLL _Pragma("unroll 1")
#else
#define SPIRITLEVEL_UNROLL
#define SPIRITLEVEL_NO_UNROLL
#endif

namespace spiritlevel::cuda {

struct alignas(kChunkBytes) Chunk {
  uint32_t words[4];
};

// C of kRowTiles by kColTiles.
template <int kRowTiles, int kColTiles>
struct Accumulator {
  float at[kRowTiles][kColTiles][4];

  SPIRITLEVEL_HOST_DEVICE void Clear() {
    SPIRITLEVEL_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SPIRITLEVEL_UNROLL
      for (int n = 0; n < kColTiles; ++n) {
        SPIRITLEVEL_UNROLL
        for (int i = 0; i < 4; ++i) at[m][n][i] = 0;
      }
    }
  }
};

// A of kRowTiles, kDepth tiles of 16 deep.
template <int kRowTiles, int kDepth>
struct Operand {
  uint32_t at[kRowTiles][kDepth][4];
};

template <int kRowTiles, int kColTiles, typename Machine>
SPIRITLEVEL_HOST_DEVICE void ToOperand(const Machine& m,
                                       const Accumulator<kRowTiles, kColTiles>& from,
                                       Operand<kRowTiles, kColTiles / 2>* to) {
  SPIRITLEVEL_UNROLL
  for (int r = 0; r < kRowTiles; ++r) {
    SPIRITLEVEL_UNROLL
    for (int d = 0; d < kColTiles / 2; ++d) {
      const auto& left = from.at[r][2 * d];
      const auto& right = from.at[r][2 * d + 1];
      to->at[r][d][0] = m.Pair(left[0], left[1]);
      to->at[r][d][1] = m.Pair(left[2], left[3]);
      to->at[r][d][2] = m.Pair(right[0], right[1]);
      to->at[r][d][3] = m.Pair(right[2], right[3]);
    }
  }
}

// c += A B^T: rows `row` ... of `a` by the rows of `b`, as deep as both are wide.
template <typename Machine, int kARows, int kBRows, int kCols, int kRowTiles>
SPIRITLEVEL_HOST_DEVICE void MultiplyByRows(const Machine& m, SharedMatrix<kARows, kCols> a,
                                            int row, SharedMatrix<kBRows, kCols> b,
                                            Accumulator<kRowTiles, kBRows / 8>* c) {
  const LanePlace by_rows = PlaceByRows(m.lane());
  const LanePlace by_columns = PlaceByColumns(m.lane());
  const auto walk_a = a.WalkFrom(row + by_rows.row, by_rows.chunk);
  const auto walk_b = b.WalkFrom(by_columns.row, by_columns.chunk);
  SPIRITLEVEL_UNROLL
  for (int depth = 0; depth < kCols / 16; ++depth) {
    uint32_t left[kRowTiles][4];
    SPIRITLEVEL_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      m.LoadMatrices(left[r], walk_a.At(depth, r));
    }
    SPIRITLEVEL_UNROLL
    for (int n = 0; n < kBRows / 16; ++n) {
      uint32_t right[4];
      m.LoadMatrices(right, walk_b.At(depth, n));
      SPIRITLEVEL_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        m.MultiplyAdd(c->at[r][2 * n], left[r], right[0], right[1]);
        m.MultiplyAdd(c->at[r][2 * n + 1], left[r], right[2], right[3]);
      }
    }
  }
}

// c += A B: A as deep as `b` has rows, by columns `col` ... of `b`.
template <typename Machine, int kRows, int kCols, int kRowTiles, int kColTiles>
SPIRITLEVEL_HOST_DEVICE void MultiplyByColumns(const Machine& m,
                                               const Operand<kRowTiles, kRows / 16>& a,
                                               SharedMatrix<kRows, kCols> b, int col,
                                               Accumulator<kRowTiles, kColTiles>* c) {
  const LanePlace by_rows = PlaceByRows(m.lane());
  const auto walk = b.WalkFrom(by_rows.row, by_rows.chunk);
  SPIRITLEVEL_UNROLL
  for (int n = 0; n < kColTiles / 2; ++n) {
    SPIRITLEVEL_UNROLL
    for (int depth = 0; depth < kRows / 16; ++depth) {
      uint32_t right[4];
      m.LoadTransposed(right, walk.At(col / 16 + n, depth));
      SPIRITLEVEL_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        m.MultiplyAdd(c->at[r][2 * n], a.at[r][depth], right[0], right[1]);
        m.MultiplyAdd(c->at[r][2 * n + 1], a.at[r][depth], right[2], right[3]);
      }
    }
  }
}

// Rows first ... of one head, those behind the end and columns behind the head as zeros. To be
// committed.
template <int kLanes, typename Machine, int kRows, int kCols>
SPIRITLEVEL_HOST_DEVICE void CopyRows(const Machine& m, const BFloat16* head, int64_t stride,
                                      int first, const AttentionGeometry& g,
                                      SharedMatrix<kRows, kCols> to) {
  constexpr int kChunks = SharedMatrix<kRows, kCols>::kChunks;
  SPIRITLEVEL_NO_UNROLL  // it would keep an address for each
      for (int at = m.warp() * 32 + m.lane(); at < kRows * kChunks; at += kLanes) {
    const int row = at / kChunks;
    const int chunk = at % kChunks;
    const bool valid = first + row < g.sequence && chunk * kChunk < g.head_dim;
    const BFloat16* const from = head + (first + row) * stride + chunk * kChunk;
    m.CopyLater(to.At(row, chunk), valid ? from : head, valid);
  }
}

// Writes a warp's rows, each by its factor, to columns `col` ... of one head. They go through rows
// `row` ... of `by`, which no other warp reads, so that what is written lies together.
template <typename Machine, int kRows, int kCols, int kRowTiles, int kColTiles>
SPIRITLEVEL_HOST_DEVICE void WriteRows(const Machine& m, const Accumulator<kRowTiles, kColTiles>& c,
                                       const float (&factors)[kRowTiles][2],
                                       SharedMatrix<kRows, kCols> by, int row, BFloat16* head,
                                       int64_t stride, int first, int col,
                                       const AttentionGeometry& g) {
  m.SyncWarp();  // its lanes have read what lay there
  SPIRITLEVEL_UNROLL
  for (int r = 0; r < kRowTiles; ++r) {
    SPIRITLEVEL_UNROLL
    for (int n = 0; n < kColTiles; ++n) {
      SPIRITLEVEL_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto& numbers = c.at[r][n];
        m.Store(
            by.At(row + 16 * r + RowOfNumber(m.lane(), 2 * half), n) +
                2 * static_cast<unsigned>(ColOfNumber(m.lane(), 0)),
            m.Pair(numbers[2 * half] * factors[r][half], numbers[2 * half + 1] * factors[r][half]));
      }
    }
  }
  m.SyncWarp();
  for (int at = m.lane(); at < 16 * kRowTiles * kColTiles; at += 32) {
    const int i = at / kColTiles;
    const int chunk = at % kColTiles;
    const int column = col + chunk * kChunk;
    if (first + i >= g.sequence || column >= g.head_dim) continue;
    m.StoreGlobal(head + (first + i) * stride + column, m.Load(by.At(row + i, chunk)));
  }
}

// The sum or the largest over the lanes that share a row.
template <typename Machine, typename Combine>
SPIRITLEVEL_HOST_DEVICE float OverRowMates(const Machine& m, float value, const Combine& combine) {
  value = combine(value, m.Other(value, kNearMate));
  return combine(value, m.Other(value, kFarMate));
}

}  // namespace spiritlevel::cuda
