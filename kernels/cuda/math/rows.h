// Rows of a view as the kernels read and write them: eight adjacent elements at a time, widened to
// fp32. Whole groups that lie right are one or two accesses of 16 bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/math/numbers.h"
#include "kernels/cuda/view.h"

namespace spiritlevel::cuda {

inline constexpr int kGroup = 8;

struct Pack {
  float at[kGroup];
};

template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  bool aligned;  // every group of 8 of every row lies right for one access

  using Value = std::remove_const_t<T>;
  struct alignas(sizeof(T) * kGroup > 16 ? 16 : sizeof(T) * kGroup) Whole {
    Value at[kGroup];
  };

  SPIRITLEVEL_HOST_DEVICE T* row(int64_t i) const { return data + i * stride; }

  // Elements col ... col + count - 1, count <= 8; the rest are 0.
  SPIRITLEVEL_HOST_DEVICE Pack Load(int64_t i, int64_t col, int count) const {
    const T* const from = row(i) + col;
    Pack pack;
    if (aligned && count == kGroup) {
      const Whole whole = *reinterpret_cast<const Whole*>(from);
      for (int k = 0; k < kGroup; ++k) pack.at[k] = ToFloat(whole.at[k]);
    } else {
      for (int k = 0; k < kGroup; ++k) pack.at[k] = k < count ? ToFloat(from[k]) : 0.0f;
    }
    return pack;
  }

  SPIRITLEVEL_HOST_DEVICE void Store(int64_t i, int64_t col, int count, const Pack& pack) const {
    T* const to = row(i) + col;
    if (aligned && count == kGroup) {
      Whole whole;
      for (int k = 0; k < kGroup; ++k) whole.at[k] = FromFloat<Value>(pack.at[k]);
      *reinterpret_cast<Whole*>(to) = whole;
    } else {
      for (int k = 0; k < kGroup; ++k) {
        if (k < count) to[k] = FromFloat<Value>(pack.at[k]);
      }
    }
  }
};

template <typename T>
Rows<T> RowsOf(const View& view) {
  constexpr auto kAlignment = alignof(typename Rows<T>::Whole);
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  const auto step = static_cast<uint64_t>(view.stride) * sizeof(T);
  return {static_cast<T*>(view.data), view.stride,
          address % kAlignment == 0 && (view.rows <= 1 || step % kAlignment == 0)};
}

SPIRITLEVEL_HOST_DEVICE constexpr int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Elements in the group that begins at `col`.
SPIRITLEVEL_HOST_DEVICE constexpr int CountAt(int64_t col, int64_t cols) {
  return cols - col >= kGroup ? kGroup : cols > col ? static_cast<int>(cols - col) : 0;
}

// Calls f with a number of the type that is stored.
template <typename F>
void WithStorage(ElementType type, const F& f) {
  SPIRITLEVEL_CHECK(type == ElementType::kFloat32 || type == ElementType::kBFloat16,
                    "fp32 or bf16 is stored");
  if (type == ElementType::kFloat32) {
    f(float{});
  } else {
    f(BFloat16{});
  }
}
template <typename F>
void WithAnyFloat(ElementType type, const F& f) {
  if (type == ElementType::kFloat8E4M3) {
    f(Float8E4M3{});
  } else if (type == ElementType::kFloat8E5M2) {
    f(Float8E5M2{});
  } else {
    WithStorage(type, f);
  }
}

}  // namespace spiritlevel::cuda
