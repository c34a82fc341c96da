// Small matrices of bf16 in a block's shared memory, and in the registers of its warps: which lane
// holds what for the tensor cores' m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16").
//
//   A [16 rows, 16 deep]  4 registers of two numbers   loaded by LoadMatrices() from row-major A
//   B [16 deep, 8 cols]   2 registers                  from B's columns as rows, or transposed
//   C [16 rows, 8 cols]   4 numbers of fp32: lane l has columns 2 (l % 4) and the next, of rows
//                         l / 4 and l / 4 + 8
//
// A product's C, rounded, is the next one's A: two tiles of 8 columns are 16 deep. So weights go
// from softmax to product without leaving their lane (Dao 2023, section 3.3).
#pragma once

#include <cstdint>

#include "kernels/cuda/math/host_device.h"

namespace spiritlevel::cuda {

inline constexpr int kChunk = 8;  // numbers in 16 bytes, which is what is moved at a time
inline constexpr int kChunkBytes = 16;

// A row-major matrix of bf16 in shared memory. Its chunks are permuted within a row so that the
// same chunk of 8 adjacent rows lies in 8 different groups of banks.
template <int kRows, int kCols>
struct SharedMatrix {
  static_assert(kCols % 16 == 0);
  static constexpr int kChunks = kCols / kChunk;
  static constexpr unsigned kBytes = kRows * kCols * 2;

  unsigned offset;  // in the block's shared memory

  SPIRITLEVEL_HOST_DEVICE constexpr unsigned At(int row, int chunk) const {
    return offset + static_cast<unsigned>((row * kChunks + (chunk ^ Twist(row))) * kChunkBytes);
  }

  // The chunk 2 `pair` + (0 or 1) of a row, from what At() says of that 0 or 1 in `row_bytes` and
  // `chunk_bytes`: a lane that goes through a row by pairs has little to compute. Rows 16 further
  // on have the same twist, and lie kBytesOf16Rows behind.
  static constexpr unsigned kBytesOf16Rows = 16 * kCols * 2;
  struct Walk {
    unsigned row_bytes;
    unsigned chunk_bytes;

    SPIRITLEVEL_HOST_DEVICE constexpr unsigned At(int pair, int rows_by_16) const {
      return row_bytes + (chunk_bytes ^ static_cast<unsigned>(pair * 2 * kChunkBytes)) +
             static_cast<unsigned>(rows_by_16) * kBytesOf16Rows;
    }
  };
  SPIRITLEVEL_HOST_DEVICE constexpr Walk WalkFrom(int row, int odd) const {
    return {offset + static_cast<unsigned>(row * kCols * 2),
            static_cast<unsigned>((odd ^ Twist(row)) * kChunkBytes)};
  }

  // With 2^n dividing kChunks, rows 8 / 2^n apart meet in a group of banks: those are told apart
  // by the chunk's lowest n bits, which stay within the row.
  static SPIRITLEVEL_HOST_DEVICE constexpr int Twist(int row) {
    constexpr int kShared = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;
    return row / (8 / kShared) % kShared;
  }
};

// Where a lane's row of the four 8 x 8 matrices lies, from the corner of the 16 x 16 that they are.
struct LanePlace {
  int row;
  int chunk;
};
// For A, and for B from a matrix whose rows are as deep as the product (with transposition).
SPIRITLEVEL_HOST_DEVICE constexpr LanePlace PlaceByRows(int lane) { return {lane % 16, lane / 16}; }
// For B from a matrix whose rows are its columns.
SPIRITLEVEL_HOST_DEVICE constexpr LanePlace PlaceByColumns(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2};
}

// Of the four numbers of C.
SPIRITLEVEL_HOST_DEVICE constexpr int RowOfNumber(int lane, int number) {
  return lane / 4 + number / 2 * 8;
}
SPIRITLEVEL_HOST_DEVICE constexpr int ColOfNumber(int lane, int number) {
  return lane % 4 * 2 + number % 2;
}
// Lanes that share rows are 1 and 2 apart.
inline constexpr int kNearMate = 1;
inline constexpr int kFarMate = 2;

}  // namespace spiritlevel::cuda
