// Rows of a table by token, and the table's gradient.
//
// A token outside the table is a fault of ours that a device cannot throw: its row becomes NaN, so
// that the loss shows it, and its gradient goes nowhere.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

template <typename T>
struct EmbeddingForwardGroup {
  const int32_t* tokens;
  Rows<const T> table;
  int64_t vocabulary;
  Rows<T> x;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    const int32_t token = tokens[row];
    Pack pack;
    if (token >= 0 && token < vocabulary) {
      pack = table.Load(token, col, count);
    } else {
      for (int k = 0; k < kGroup; ++k) pack.at[k] = NotANumber();
    }
    x.Store(row, col, count, pack);
  }
};

// One block for each row of dx and each 2048 columns. The block of a token's first row adds all of
// them, in order; the others see that there is an earlier one, and end. So each row of the table
// has one writer, and no table of the vocabulary's size is gone through or sorted.
//
// Each block reads all tokens from its own on, which lie in the cache, 8192 at a time, and notes
// which are the same as its own: side by side lanes read side by side tokens, so first in a byte
// for each, which are then packed to bits.
template <typename T>
struct EmbeddingWeightGradRow {
  static constexpr int kLanes = 256;
  static constexpr int kWords = kLanes;
  static constexpr int kTokens = 32 * kWords;
  static constexpr int64_t kCols = int64_t{kLanes} * kGroup;

  struct Found {
    uint32_t words[kWords];
    uint8_t is_same[kTokens];
  };
  static constexpr size_t kSharedBytes = sizeof(Found);

  const int32_t* tokens;
  Rows<const T> dx;
  Rows<float> dtable;
  int64_t rows;
  int64_t vocabulary;
  int64_t cols;
  int64_t strips;

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const int64_t first = index / strips;
    const int32_t token = tokens[first];
    if (token < 0 || token >= vocabulary) return;
    const bool not_the_first = block.Any([&](int lane) {
      for (int64_t row = lane; row < first; row += kLanes) {
        if (tokens[row] == token) return true;
      }
      return false;
    });
    if (not_the_first) return;
    const int64_t first_col = (index - first * strips) * kCols;
    auto* const found = static_cast<Found*>(block.shared());
    for (int64_t begin = first; begin < rows; begin += kTokens) {
      block.Each([&](int lane) {
        for (int i = lane; i < kTokens; i += kLanes) {
          found->is_same[i] = begin + i < rows && tokens[begin + i] == token ? 1 : 0;
        }
      });
      block.Each([&](int lane) { found->words[lane] = Pack32(found->is_same + 32 * lane); });
      block.Each([&](int lane) {
        AddFound(token, begin, first_col + int64_t{lane} * kGroup, found->words);
      });
    }
  }

  SPIRITLEVEL_HOST_DEVICE static uint32_t Pack32(const uint8_t* is_same) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(is_same[i]) << i;
    return bits;
  }

  SPIRITLEVEL_HOST_DEVICE void AddFound(int32_t token, int64_t begin, int64_t col,
                                        const uint32_t* found) const {
    const int count = CountAt(col, cols);
    if (count == 0) return;
    Pack sum = dtable.Load(token, col, count);
    // Nearly all are 0: four at a time.
    for (int word = 0; word < kWords && begin + int64_t{word} * 32 < rows; word += 4) {
      if ((found[word] | found[word + 1] | found[word + 2] | found[word + 3]) == 0) continue;
      for (int i = word; i < word + 4; ++i)
        AddRows(found[i], begin + int64_t{i} * 32, col, count, &sum);
    }
    dtable.Store(token, col, count, sum);
  }

  SPIRITLEVEL_HOST_DEVICE void AddRows(uint32_t bits, int64_t row, int64_t col, int count,
                                       Pack* sum) const {
    for (; bits != 0; ++row, bits >>= 1) {
      if ((bits & 1u) == 0) continue;
      const Pack grad = dx.Load(row, col, count);
      for (int k = 0; k < kGroup; ++k) sum->at[k] += grad.at[k];
    }
  }
};

template <typename Grid>
void Compute(const EmbeddingForward& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(
        EmbeddingForwardGroup<T>{static_cast<const int32_t*>(call.tokens.data),
                                 RowsOf<const T>(call.table), call.table.rows, RowsOf<T>(call.x)},
        Extent{call.x.rows, call.x.cols}, grid);
  });
}

template <typename Grid>
void Compute(const EmbeddingWeightGrad& call, const Grid& grid) {
  WithStorage(call.dx.type, [&](auto element) {
    using T = decltype(element);
    using Kernel = EmbeddingWeightGradRow<T>;
    const int64_t strips = CeilDivide(call.dx.cols, Kernel::kCols);
    const Kernel kernel{static_cast<const int32_t*>(call.tokens.data),
                        RowsOf<const T>(call.dx),
                        RowsOf<float>(call.dtable),
                        call.dx.rows,
                        call.dtable.rows,
                        call.dx.cols,
                        strips};
    grid(kernel, call.dx.rows * strips, Kernel::kLanes);
  });
}

}  // namespace spiritlevel::cuda
