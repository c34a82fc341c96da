// Calls with operands in the host's memory, one for each kind of call and each shape: for tests
// that hold for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/call_views.h"
#include "kernels/cuda/calls.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel {

// What a kind of call makes of it is in examples.cc: `cols` are those of a norm's row, the
// vocabulary of a loss, half of a rotated head.
struct ExampleShape {
  cuda::ElementType type = cuda::ElementType::kFloat32;
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t gap = 0;  // elements between the rows of operands that may have some
};

std::string ToString(const ExampleShape& shape);

// The numbers of a view of the host's memory, row by row.
Doubles ValuesOf(const cuda::View& view);
// Rounded to what the view stores. There must be as many.
void SetValues(const cuda::View& view, const Doubles& values);

class Example {
 public:
  // `kind` as NameOf() says, all but attention. Equal arguments make equal numbers.
  Example(std::string_view kind, const ExampleShape& shape, unsigned seed = 1);
  Example(const Example&) = delete;
  Example& operator=(const Example&) = delete;

  static std::vector<std::string> Kinds();

  cuda::Call& call() { return call_; }
  const cuda::Call& call() const { return call_; }

  cuda::View view(std::string_view name) const;
  Doubles values(std::string_view name) const { return ValuesOf(view(name)); }
  // The names of what the call writes, workspaces left out.
  std::vector<std::string> results() const;

  // True while nothing but the results and workspaces has changed, gaps included.
  bool OnlyResultsHaveChanged() const;
  // To the bit, in all memory of both.
  bool HasTheBitsOf(const Example& other) const;

  // More memory, random between -1 and 1. The rows of what has several lie `gap` apart.
  cuda::View Random(cuda::ElementType type, int64_t rows, int64_t cols);
  cuda::View RandomDense(cuda::ElementType type, int64_t rows, int64_t cols);
  // From `least` on and below `end`.
  cuda::View Integers(int64_t count, int32_t least, int32_t end);

 private:
  struct Buffer {
    std::vector<std::max_align_t> memory;
    size_t bytes = 0;
    std::vector<std::byte> before;

    std::byte* data() { return reinterpret_cast<std::byte*>(memory.data()); }
    const std::byte* data() const { return reinterpret_cast<const std::byte*>(memory.data()); }
  };

  cuda::View Make(cuda::ElementType type, int64_t rows, int64_t cols, int64_t gap);

  int64_t gap_;
  std::mt19937 random_;
  std::deque<Buffer> buffers_;
  cuda::Call call_;
};

}  // namespace spiritlevel
