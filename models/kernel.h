// Kernels: the primitive pieces of work that a pass is made of, with their shapes.
//
// What a device profile times and what a layer's passes are listed in. A kernel knows how much it
// computes and how many bytes it has to read and write, not how long that takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/units.h"

namespace spiritlevel {

// Of parameters, activations and their gradients. Master weights are float32 beside them.
enum class DType : uint8_t { kFloat32, kBFloat16, kFloat16 };

std::string_view Name(DType dtype);  // "float32", "bfloat16", "float16"
Bytes SizeOf(DType dtype);
// Also "fp32", "bf16", "fp16". Throws InputError with the names there are.
DType ParseDType(std::string_view name);

// C[m x n] = A[m x k] B[k x n]. The three uses of a projection y = x w differ in which operand is
// transposed and which dimension is the long one, so a profile may time each by itself.
struct Gemm {
  enum class Use : uint8_t { kForward, kInputGrad, kWeightGrad };

  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Use use = Use::kForward;

  friend bool operator==(const Gemm&, const Gemm&) = default;
};
inline constexpr int kNumGemmUses = 3;

// Softmax attention without a stored matrix.
struct Attention {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t sequence = 0;
  int64_t head_dim = 0;
  bool causal = true;
  int64_t window = 0;  // each token sees this many, itself included; 0: all
  bool backward = false;
  Bytes element = 2;

  friend bool operator==(const Attention&, const Attention&) = default;
};

// RMSNorm or LayerNorm over `width` elements of each row.
struct Norm {
  // kInputGrad and kWeightGrad are the halves of kBackward where a runtime splits it.
  enum class Part : uint8_t { kForward, kBackward, kInputGrad, kWeightGrad };

  int64_t rows = 0;
  int64_t width = 0;
  Part part = Part::kForward;
  Bytes element = 2;

  friend bool operator==(const Norm&, const Norm&) = default;
};

// Anything that streams through memory: activations, residual additions, rotation of q and k.
struct Elementwise {
  Bytes bytes_moved = 0;  // read and written

  friend bool operator==(const Elementwise&, const Elementwise&) = default;
};

// Rows taken from a table, or added to it.
struct Embedding {
  int64_t tokens = 0;
  int64_t width = 0;
  bool backward = false;
  Bytes element = 2;

  friend bool operator==(const Embedding&, const Embedding&) = default;
};

// Softmax cross entropy over the vocabulary, one token a row.
struct Loss {
  int64_t tokens = 0;
  int64_t vocabulary = 0;
  bool backward = false;
  Bytes element = 2;

  friend bool operator==(const Loss&, const Loss&) = default;
};

using Kernel = std::variant<Gemm, Attention, Norm, Elementwise, Embedding, Loss>;

// What kernels lose where all cores compute follows from what they share: products little, what
// streams through memory much.
enum class KernelClass : uint8_t { kProduct, kAttention, kStreaming };
inline constexpr int kNumKernelClasses = 3;

std::string_view Name(KernelClass kernel_class);  // "product", "attention", "streaming"
KernelClass ClassOf(const Kernel& kernel);        // all but Gemm and Attention stream

// Multiplications and additions of the matrix products; 0 for kernels that have none. Attention
// counts the pairs it needs under its mask; its backward twice its forward, since the products
// that a kernel without a stored matrix computes again are part of its speed, not of the work.
double Flops(const Kernel& kernel);

// Pairs of a query and a key that attend to each other, in one head of one sequence.
double AttendedPairs(const Attention& attention);

// Read and written at least; 0 for Gemm and Attention, which are not bound by it.
Bytes BytesMoved(const Kernel& kernel);

// Of a norm and an embedding, which take one row after the other: a cache holds a row of them or
// does not, and each row costs something by itself. 1 for all others.
int64_t RowsOf(const Kernel& kernel);

std::string ToString(const Kernel& kernel);  // "gemm 4096 x 4096 x 1024 forward"

}  // namespace spiritlevel
