// Scratch: one block of workspace for a pass, handed out like a stack. Internal to the model.
//
//   Frame frame(scratch);
//   const View y = frame.New(type, rows, cols);
//
// A frame gives back what it took when it ends: work is posted to one stream, so whoever gets the
// same bytes next comes later there. One block, because each of a pool costs an event at its end.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/model/device_tensor.h"

namespace spiritlevel::cuda {

// What a piece of scratch takes: all begin where any kernel may read whole groups.
constexpr Bytes ScratchBytes(Bytes bytes) { return (bytes + 255) / 256 * 256; }

class Scratch {
 public:
  Scratch(const DeviceContext& context, Bytes size) {
    if (size > 0) block_ = context.pool->Take(TensorUse::kWorkspace, size, context.compute);
  }

  Bytes most_used() const { return most_used_; }

 private:
  friend class Frame;

  void* Take(Bytes bytes) {
    SPIRITLEVEL_CHECK(used_ + ScratchBytes(bytes) <= block_.bytes(),
                      "scratch is as large as its pass needs");
    void* const piece = static_cast<std::byte*>(block_.data()) + used_;
    used_ += ScratchBytes(bytes);
    most_used_ = std::max(most_used_, used_);
    return piece;
  }

  Buffer block_;
  Bytes used_ = 0;
  Bytes most_used_ = 0;
};

class Frame {
 public:
  explicit Frame(Scratch* scratch) : scratch_(scratch), begin_(scratch->used_) {}
  ~Frame() { scratch_->used_ = begin_; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  View New(ElementType type, int64_t rows, int64_t cols) {
    return Dense(scratch_->Take(rows * cols * SizeOf(type)), type, rows, cols);
  }

 private:
  Scratch* scratch_;
  Bytes begin_;
};

}  // namespace spiritlevel::cuda
