// Operands of kernels in a device's memory: several sets, so that each run meets cold ones.
// Internal to calibrate/.
//
// A kernel in training sees its operands again only after other layers' data have passed through
// the L2. So the sets of a kernel take, together, more than twice that, and are used in turn.
//
// They hold numbers as uneven as real ones: a matrix unit that multiplies constants takes less
// power, and runs at a higher clock, than one at work.
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cuda_handles.h"
#include "kernels/cuda/view.h"

namespace spiritlevel {

struct OperandSpec {
  enum class Content : uint8_t { kNumbers, kZeros, kOnes, kTokens };

  cuda::ElementType type = cuda::ElementType::kBFloat16;
  int64_t rows = 1;
  int64_t cols = 0;
  Content content = Content::kNumbers;
  bool shared = false;  // one for all sets: a workspace, a table that each set uses other rows of
  int64_t vocabulary = 0;  // of tokens

  Bytes bytes() const { return rows * cols * cuda::SizeOf(type); }
};

// How many sets there are, and what they take with what they share.
int SetsOf(const std::vector<OperandSpec>& specs, Bytes l2);
Bytes BytesOf(const std::vector<OperandSpec>& specs, Bytes l2);

// Fills memory of a device with numbers between -1 and 1. Has a block of them there, from which it
// copies: the host would take longer than the kernels that are timed.
class CudaFiller {
 public:
  // Posts on `stream`, which whoever uses the memory is to be behind.
  CudaFiller(cuda::Layer* layer, int device, cuda::Stream stream);

  void Fill(const OperandSpec& spec, std::byte* to, uint32_t seed);

 private:
  void Repeat(const CudaMemory& block, std::byte* to, Bytes bytes);
  void Tokens(const OperandSpec& spec, std::byte* to, uint32_t seed);

  cuda::Layer* layer_;
  cuda::Stream stream_;
  CudaMemory wide_;    // bf16; as fp32 they are ordinary numbers too
  CudaMemory narrow_;  // fp8, of either kind
};

class CudaOperands {
 public:
  // Throws GpuError, of kind kOutOfMemory where the device has no more.
  CudaOperands(cuda::Layer* layer, int device, CudaFiller* filler, std::vector<OperandSpec> specs,
               Bytes l2);

  int sets() const { return sets_; }
  std::vector<cuda::View> ViewsOf(int set) const;  // in the order of the specs

 private:
  std::vector<OperandSpec> specs_;
  int sets_;
  CudaMemory own_;
  CudaMemory shared_;
  Bytes stride_ = 0;  // from one set to the next
};

}  // namespace spiritlevel
