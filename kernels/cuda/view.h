// Views of matrices in a device's memory. The host passes them on and never looks at what they
// point to, unless the "device" is the host itself (host_kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/units.h"

namespace spiritlevel::cuda {

enum class ElementType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt32,
  kFloat64
};

constexpr Bytes SizeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat64:
      return 8;
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kBFloat16:
      return 2;
    case ElementType::kFloat8E4M3:
    case ElementType::kFloat8E5M2:
      return 1;
  }
  return 0;
}

// Rows of `cols` adjacent elements, `stride` elements from one row to the next.
struct View {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  bool empty() const { return data == nullptr; }
  int64_t size() const { return rows * cols; }
  bool has_gaps() const { return stride != cols; }

  View Columns(int64_t begin, int64_t count) const {
    SPIRITLEVEL_CHECK(begin >= 0 && count >= 0 && begin + count <= cols, "columns are in a view");
    return {static_cast<std::byte*>(data) + begin * SizeOf(type), type, rows, count, stride};
  }
  View Rows(int64_t begin, int64_t count) const {
    SPIRITLEVEL_CHECK(begin >= 0 && count >= 0 && begin + count <= rows, "rows are in a view");
    return {static_cast<std::byte*>(data) + begin * stride * SizeOf(type), type, count, cols,
            stride};
  }

  friend bool operator==(const View&, const View&) = default;
};

inline View Dense(void* data, ElementType type, int64_t rows, int64_t cols) {
  return {data, type, rows, cols, cols};
}

}  // namespace spiritlevel::cuda
