#include "calibrate/operand_memory.h"

#include <algorithm>
#include <new>
#include <random>

namespace spiritlevel {
namespace {

constexpr std::align_val_t kLine{64};

float* Allocate(int64_t floats) {
  return static_cast<float*>(::operator new(static_cast<size_t>(floats) * sizeof(float), kLine));
}

void Free(float* begin) { ::operator delete(begin, kLine); }

// Numbers between -1 and 1, the same for everybody: no kernel here is faster or slower for other
// ordinary numbers, and zeros or denormals would be.
const std::vector<float>& Pattern() {
  static const std::vector<float>* const pattern = [] {
    auto* numbers = new std::vector<float>(size_t{1} << 18);
    std::mt19937 random(20240607);
    std::uniform_real_distribution<float> between(-1, 1);
    for (float& number : *numbers) number = between(random);
    return numbers;
  }();
  return *pattern;
}

void FillWithPattern(float* begin, int64_t floats) {
  const std::vector<float>& pattern = Pattern();
  const auto length = static_cast<int64_t>(pattern.size());
  for (int64_t at = 0; at < floats; at += length) {
    std::copy_n(pattern.begin(), std::min(length, floats - at), begin + at);
  }
}

}  // namespace

OperandMemory::~OperandMemory() {
  for (const Piece& piece : free_) Free(piece.begin);
}

OperandMemory::Loan OperandMemory::Borrow(int64_t floats) {
  const Piece piece = TakeOut(floats);
  Loan loan(piece.begin, GiveBack(this, piece.floats));
  FillWithPattern(loan.get(), floats);
  return loan;
}

OperandMemory::Piece OperandMemory::TakeOut(int64_t floats) {
  Piece too_small;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [floats](const Piece& p) { return p.floats >= floats; });
    const auto chosen = fits == free_.end() && !free_.empty() ? free_.begin() : fits;
    if (chosen != free_.end()) {
      const Piece piece = *chosen;
      free_.erase(chosen);
      if (piece.floats >= floats) return piece;
      too_small = piece;
    }
  }
  // Replaced rather than kept beside a larger one: no more is held than was ever lent at once.
  if (too_small.begin != nullptr) Free(too_small.begin);
  const int64_t size = std::max(floats, usual_floats_);
  return {.begin = Allocate(size), .floats = size};
}

void OperandMemory::TakeBack(float* begin, int64_t floats) {
  const std::lock_guard lock(mutex_);
  free_.push_back({.begin = begin, .floats = floats});
}

}  // namespace spiritlevel
