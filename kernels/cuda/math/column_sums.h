// Sums over rows, one for each column: of a bias's gradient and of the norms' weights.
//
// In two kernels, so that tall matrices keep a whole device busy and sums still have one order. The
// rows are cut in tiles by their number alone. A block sums one tile of 64 columns: 32 lanes for
// each 8 columns, each with every 32nd row, then those 32 in order. Then the tiles are added up in
// order, and to what was there.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

inline constexpr int kStripCols = 64;
inline constexpr int kStripGroups = kStripCols / kGroup;
inline constexpr int kStripLanes = 256;
inline constexpr int kStripRows = kStripLanes / kStripGroups;  // side by side

struct RowTiles {
  int64_t rows_of_tile;
  int64_t tiles;
};

// At most 64, of at least 32 rows.
inline RowTiles TilesOf(int64_t rows) {
  const int64_t of_tile = CeilDivide(CeilDivide(rows, 64), kStripRows) * kStripRows;
  return rows == 0 ? RowTiles{kStripRows, 0} : RowTiles{of_tile, CeilDivide(rows, of_tile)};
}

// `Term` has kSums, and Add(row, col, count, Pack sums[kSums]).
template <typename Term>
struct SumTile {
  static constexpr int kSums = Term::kSums;
  static constexpr size_t kSharedBytes = size_t{kSums} * kStripLanes * sizeof(Pack);

  Term term;
  int64_t rows;
  int64_t cols;
  RowTiles tiles;
  int64_t strips;
  float* partials;  // [kSums tiles, cols]

  template <typename Block>
  SPIRITLEVEL_HOST_DEVICE void operator()(const Block& block, int64_t index) const {
    const int64_t tile = index / strips;
    const int64_t first_col = (index - tile * strips) * kStripCols;
    auto* const of_lanes = static_cast<Pack*>(block.shared());
    block.Each([&](int lane) { SumRows(tile, first_col, lane, of_lanes); });
    block.Each([&](int lane) {
      for (int item = lane; item < kSums * kStripCols; item += kStripLanes) {
        Combine(tile, first_col, item / kStripCols, item % kStripCols, of_lanes);
      }
    });
  }

  SPIRITLEVEL_HOST_DEVICE void SumRows(int64_t tile, int64_t first_col, int lane,
                                       Pack* of_lanes) const {
    const int64_t begin = tile * tiles.rows_of_tile;
    const int64_t end = begin + tiles.rows_of_tile < rows ? begin + tiles.rows_of_tile : rows;
    const int64_t col = first_col + lane % kStripGroups * kGroup;
    const int count = CountAt(col, cols);
    Pack sums[kSums] = {};
    if (count > 0) {
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
      for (int64_t row = begin + lane / kStripGroups; row < end; row += kStripRows) {
        term.Add(row, col, count, sums);
      }
    }
    for (int s = 0; s < kSums; ++s) of_lanes[s * kStripLanes + lane] = sums[s];
  }

  SPIRITLEVEL_HOST_DEVICE void Combine(int64_t tile, int64_t first_col, int s, int col,
                                       const Pack* of_lanes) const {
    if (first_col + col >= cols) return;
    float sum = 0;
    for (int row = 0; row < kStripRows; ++row) {
      sum += of_lanes[s * kStripLanes + row * kStripGroups + col / kGroup].at[col % kGroup];
    }
    partials[(s * tiles.tiles + tile) * cols + first_col + col] = sum;
  }
};

struct AddTilesGroup {
  Rows<const float> partials;
  int64_t tiles;
  Rows<float> sums;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t /*row*/, int64_t col, int count) const {
    Pack sum = {};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const Pack part = partials.Load(tile, col, count);
      for (int k = 0; k < kGroup; ++k) sum.at[k] += part.at[k];
    }
    Pack total = sums.Load(0, col, count);
    for (int k = 0; k < kGroup; ++k) total.at[k] += sum.at[k];
    sums.Store(0, col, count, total);
  }
};

template <typename Term, typename Grid>
void SumColumns(const Term& term, int64_t rows, int64_t cols, const View& workspace,
                const View* const (&sums)[Term::kSums], const Grid& grid) {
  const RowTiles tiles = TilesOf(rows);
  const int64_t strips = CeilDivide(cols, kStripCols);
  auto* const partials = static_cast<float*>(workspace.data);
  grid(SumTile<Term>{term, rows, cols, tiles, strips, partials}, tiles.tiles * strips, kStripLanes);
  for (int s = 0; s < Term::kSums; ++s) {
    const View part =
        Dense(partials + s * tiles.tiles * cols, ElementType::kFloat32, tiles.tiles, cols);
    RunGroups(AddTilesGroup{RowsOf<const float>(part), tiles.tiles, RowsOf<float>(*sums[s])},
              Extent{1, cols}, grid);
  }
}

template <typename T>
struct PlainTerm {
  static constexpr int kSums = 1;
  Rows<const T> x;

  SPIRITLEVEL_HOST_DEVICE void Add(int64_t row, int64_t col, int count, Pack* sums) const {
    const Pack in = x.Load(row, col, count);
    for (int k = 0; k < kGroup; ++k) sums[0].at[k] += in.at[k];
  }
};

template <typename T>
struct RmsNormTerm {
  static constexpr int kSums = 1;
  Rows<const T> x;
  const float* inverse_rms;
  Rows<const T> dy;

  SPIRITLEVEL_HOST_DEVICE void Add(int64_t row, int64_t col, int count, Pack* sums) const {
    const Pack in = x.Load(row, col, count);
    const Pack grad = dy.Load(row, col, count);
    const float r = inverse_rms[row];
    for (int k = 0; k < kGroup; ++k) sums[0].at[k] += grad.at[k] * in.at[k] * r;
  }
};

template <typename T>
struct LayerNormTerm {
  static constexpr int kSums = 2;
  Rows<const T> x;
  const float* means;
  const float* inverse_deviations;
  Rows<const T> dy;

  SPIRITLEVEL_HOST_DEVICE void Add(int64_t row, int64_t col, int count, Pack* sums) const {
    const Pack in = x.Load(row, col, count);
    const Pack grad = dy.Load(row, col, count);
    const float m = means[row];
    const float r = inverse_deviations[row];
    for (int k = 0; k < kGroup; ++k) {
      sums[0].at[k] += grad.at[k] * (in.at[k] - m) * r;
      sums[1].at[k] += grad.at[k];
    }
  }
};

template <typename Grid>
void Compute(const ColumnSums& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    SumColumns(PlainTerm<T>{RowsOf<const T>(call.x)}, call.x.rows, call.x.cols, call.workspace,
               {&call.sums}, grid);
  });
}

template <typename Grid>
void Compute(const RmsNormWeightGrad& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const RmsNormTerm<T> term{RowsOf<const T>(call.x), RowsOf<const float>(call.statistics).row(0),
                              RowsOf<const T>(call.dy)};
    SumColumns(term, call.x.rows, call.x.cols, call.workspace, {&call.dweight}, grid);
  });
}

template <typename Grid>
void Compute(const LayerNormWeightGrad& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    const Rows<const float> statistics = RowsOf<const float>(call.statistics);
    const LayerNormTerm<T> term{RowsOf<const T>(call.x), statistics.row(0), statistics.row(1),
                                RowsOf<const T>(call.dy)};
    SumColumns(term, call.x.rows, call.x.cols, call.workspace, {&call.dweight, &call.dbias}, grid);
  });
}

}  // namespace spiritlevel::cuda
