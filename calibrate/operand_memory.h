// OperandMemory: lends pieces of memory for operands, and takes them back for the next ones.
//
// A kernel's operands are many times larger than a cache. The system takes several times longer to
// hand out that many fresh pages than the kernel is timed for, so the pages are kept.
//
//   OperandMemory memory(/*usual_floats=*/1 << 24);
//   const OperandMemory::Loan loan = memory.Borrow(1'000'000);
//   loan.get()[999'999];   // a number between -1 and 1
//
// May be used by several threads; must outlive what it lent.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace spiritlevel {

class OperandMemory {
 public:
  class GiveBack {
   public:
    GiveBack() = default;
    GiveBack(OperandMemory* memory, int64_t floats) : memory_(memory), floats_(floats) {}
    void operator()(float* begin) const { memory_->TakeBack(begin, floats_); }

   private:
    OperandMemory* memory_ = nullptr;
    int64_t floats_ = 0;
  };
  using Loan = std::unique_ptr<float[], GiveBack>;

  // `usual_floats`: no piece is made smaller, so that it serves for most requests.
  explicit OperandMemory(int64_t usual_floats) : usual_floats_(usual_floats) {}
  ~OperandMemory();
  OperandMemory(const OperandMemory&) = delete;
  OperandMemory& operator=(const OperandMemory&) = delete;

  // Begins at a cache line, and holds the same ordinary numbers each time: what the last borrower
  // left may be denormal, which some processors are slow with.
  Loan Borrow(int64_t floats);

 private:
  struct Piece {
    float* begin = nullptr;
    int64_t floats = 0;
  };

  Piece TakeOut(int64_t floats);
  void TakeBack(float* begin, int64_t floats);

  int64_t usual_floats_;
  std::mutex mutex_;
  std::vector<Piece> free_;
};

}  // namespace spiritlevel
