// An attention to be computed: random operands, room for results, and what they should be in
// float64.
//
// All memory is one piece, so that it can be copied to a device and looked at as a whole: a kernel
// that writes where it should not is found out. Q, K and V are columns of one matrix, as a model
// has them, and so are their gradients.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cuda/calls.h"
#include "tests/kernels/numbers.h"

namespace spiritlevel::cuda {

struct AttentionCase {
  AttentionShape shape;
  ElementType type = ElementType::kFloat32;
  int64_t gap = 8;  // elements between rows
  double size = 1;  // of operands, which are between - and +
  uint32_t seed = 1;
};
std::string NameOf(const AttentionCase& c);
void PrintTo(const AttentionCase& c, std::ostream* out);

struct AttentionResults {
  Doubles out;
  Doubles log_sum_exp;
  Doubles dq;
  Doubles dk;
  Doubles dv;
};

class AttentionProblem {
 public:
  explicit AttentionProblem(const AttentionCase& c);

  // With views of a copy of memory() that lies at `base`.
  AttentionForward Forward(void* base) const;
  AttentionBackward Backward(void* base) const;
  AttentionForward Forward() { return Forward(memory_.data()); }
  AttentionBackward Backward() { return Backward(memory_.data()); }

  std::vector<std::byte>& memory() { return memory_; }
  AttentionResults Results() const;
  // True while nothing but results and workspace differs from how it began.
  bool OnlyResultsAreWritten() const;

  // Not by tiles, and not by a running maximum.
  AttentionResults InFloat64() const;

 private:
  View Place(int64_t rows, int64_t cols, ElementType type, int64_t gap);
  void FillRandomly(const View& view, uint32_t seed);
  View At(const View& view, const void* base) const;
  Doubles Read(const View& view) const;
  void Mark(const View& view, std::vector<bool>* written) const;

  AttentionCase case_;
  // Views whose data is an offset into the memory.
  View qkv_, dqkv_, out_, dout_, log_sum_exp_, workspace_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> initial_;
};

// The worst of the five results, each relative to its largest number.
double WorstError(const AttentionResults& a, const AttentionResults& b);

}  // namespace spiritlevel::cuda
