// Scratch: one block of workspace for a pass, handed out like a stack. Internal to the model.
//
//   Frame frame(scratch);
//   const ConstMatrix x = frame.Read(tensor);     // itself, or a bf16 tensor widened
//   const Matrix y = frame.Write(out);            // itself, or room in which to make it
//   LinearForward(x, ..., y);
//   frame.Store(y, &out);                         // rounds to bf16; nothing for fp32
//
// A frame gives back what it took when it ends. All pieces begin at multiples of 64 bytes, so that
// no sum depends on where they lie.
#pragma once

#include <cstdint>

#include "kernels/cpu/matrix.h"
#include "kernels/cpu/model/tensor.h"

namespace spiritlevel::cpu {

// What a piece of scratch takes.
constexpr Bytes ScratchBytes(int64_t floats) { return (floats * 4 + 63) / 64 * 64; }

class Scratch {
 public:
  Scratch(MemoryMeter* meter, Bytes size);

  Bytes most_used() const { return most_used_ * 4; }

 private:
  friend class Frame;
  float* Take(int64_t floats);

  Tensor block_;
  int64_t used_ = 0;  // floats
  int64_t most_used_ = 0;
};

class Frame {
 public:
  explicit Frame(Scratch* scratch) : scratch_(scratch), begin_(scratch->used_) {}
  ~Frame() { scratch_->used_ = begin_; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  Matrix New(int64_t rows, int64_t cols) { return {scratch_->Take(rows * cols), rows, cols}; }

  ConstMatrix Read(const Tensor& tensor) { return Read(tensor, 0, tensor.rows()); }
  ConstMatrix Read(const Tensor& tensor, int64_t begin, int64_t rows);
  Matrix Write(Tensor* tensor) { return Write(tensor, 0, tensor->rows()); }
  Matrix Write(Tensor* tensor, int64_t begin, int64_t rows);
  // What is read and then replaced.
  Matrix Change(Tensor* tensor) { return Change(tensor, 0, tensor->rows()); }
  Matrix Change(Tensor* tensor, int64_t begin, int64_t rows);
  void Store(ConstMatrix values, Tensor* tensor) { Store(values, tensor, 0); }
  void Store(ConstMatrix values, Tensor* tensor, int64_t begin);

 private:
  Scratch* scratch_;
  int64_t begin_;
};

// Rows of a tensor, whatever it is stored in.
void ReadRow(const Tensor& tensor, int64_t row, float* values);
void CopyRow(const Tensor& from, int64_t row, Tensor* to, int64_t to_row);  // of one type

// sum = base + change, rounded once. `sum` may be `base`.
void Add(const Tensor& base, ConstMatrix change, Tensor* sum);

}  // namespace spiritlevel::cpu
