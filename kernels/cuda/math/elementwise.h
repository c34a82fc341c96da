// Fill, Convert, Add and AddBias.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

template <typename T>
struct FillGroup {
  Rows<T> to;
  float value;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    Pack pack;
    for (int k = 0; k < kGroup; ++k) pack.at[k] = value;
    to.Store(row, col, count, pack);
  }
};

template <typename From, typename To>
struct ConvertGroup {
  Rows<const From> from;
  Rows<To> to;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    to.Store(row, col, count, from.Load(row, col, count));
  }
};

template <typename T>
struct AddGroup {
  Rows<const T> a;
  Rows<const T> b;
  Rows<T> to;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    Pack sum = a.Load(row, col, count);
    const Pack other = b.Load(row, col, count);
    for (int k = 0; k < kGroup; ++k) sum.at[k] += other.at[k];
    to.Store(row, col, count, sum);
  }
};

template <typename T>
struct AddBiasGroup {
  Rows<const T> bias;
  Rows<T> x;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    Pack sum = x.Load(row, col, count);
    const Pack other = bias.Load(0, col, count);
    for (int k = 0; k < kGroup; ++k) sum.at[k] += other.at[k];
    x.Store(row, col, count, sum);
  }
};

template <typename Grid>
void Compute(const Fill& call, const Grid& grid) {
  WithAnyFloat(call.to.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(FillGroup<T>{RowsOf<T>(call.to), call.value}, ExtentOf(call.to), grid);
  });
}

template <typename Grid>
void Compute(const Convert& call, const Grid& grid) {
  WithAnyFloat(call.from.type, [&](auto from) {
    WithAnyFloat(call.to.type, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      RunGroups(ConvertGroup<From, To>{RowsOf<const From>(call.from), RowsOf<To>(call.to)},
                ExtentOf(call.from, call.to), grid);
    });
  });
}

template <typename Grid>
void Compute(const Add& call, const Grid& grid) {
  WithStorage(call.a.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(AddGroup<T>{RowsOf<const T>(call.a), RowsOf<const T>(call.b), RowsOf<T>(call.to)},
              ExtentOf(call.a, call.b, call.to), grid);
  });
}

template <typename Grid>
void Compute(const AddBias& call, const Grid& grid) {
  WithStorage(call.x.type, [&](auto element) {
    using T = decltype(element);
    RunGroups(AddBiasGroup<T>{RowsOf<const T>(call.bias), RowsOf<T>(call.x)},
              Extent{call.x.rows, call.x.cols}, grid);
  });
}

}  // namespace spiritlevel::cuda
