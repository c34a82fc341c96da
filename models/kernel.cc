#include "models/kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

double AsDouble(int64_t value) { return static_cast<double>(value); }

struct FlopsOf {
  double operator()(const Gemm& g) const {
    return 2 * AsDouble(g.m) * AsDouble(g.n) * AsDouble(g.k);
  }
  // q k^T and p v: two products, each a multiplication and an addition for pair and element.
  double operator()(const Attention& a) const {
    const double forward =
        4 * AsDouble(a.batch) * AsDouble(a.heads) * AsDouble(a.head_dim) * AttendedPairs(a);
    return a.backward ? 2 * forward : forward;
  }
  template <class Other>
  double operator()(const Other&) const {
    return 0;
  }
};

struct BytesOf {
  Bytes operator()(const Gemm&) const { return 0; }
  Bytes operator()(const Attention&) const { return 0; }
  Bytes operator()(const Norm& n) const {
    const Bytes rows = n.rows * n.width * n.element;
    switch (n.part) {
      case Norm::Part::kForward:
        return 2 * rows;  // x -> y
      case Norm::Part::kBackward:
        return 3 * rows;  // x, dy -> dx, and a sum per column
      case Norm::Part::kInputGrad:
        return 3 * rows;  // x, dy -> dx
      case Norm::Part::kWeightGrad:
        return 2 * rows;  // x, dy -> a sum per column
    }
    return 0;
  }
  Bytes operator()(const Elementwise& e) const { return e.bytes_moved; }
  Bytes operator()(const Embedding& e) const {
    const Bytes rows = e.tokens * e.width * e.element;
    return e.backward ? 3 * rows : 2 * rows;  // dy, and the row read and written
  }
  Bytes operator()(const Loss& l) const {
    const Bytes logits = l.tokens * l.vocabulary * l.element;
    return l.backward ? 2 * logits : logits;  // logits -> loss; logits -> their gradient
  }
};

struct RowsIn {
  int64_t operator()(const Norm& n) const { return n.rows; }
  int64_t operator()(const Embedding& e) const { return e.tokens; }
  template <class Other>
  int64_t operator()(const Other&) const {
    return 1;
  }
};

std::string_view Word(Gemm::Use use) {
  switch (use) {
    case Gemm::Use::kForward:
      return "forward";
    case Gemm::Use::kInputGrad:
      return "input grad";
    case Gemm::Use::kWeightGrad:
      return "weight grad";
  }
  return "";
}

std::string_view Word(Norm::Part part) {
  switch (part) {
    case Norm::Part::kForward:
      return "forward";
    case Norm::Part::kBackward:
      return "backward";
    case Norm::Part::kInputGrad:
      return "input grad";
    case Norm::Part::kWeightGrad:
      return "weight grad";
  }
  return "";
}

std::string_view Word(bool backward) { return backward ? "backward" : "forward"; }

struct TextOf {
  std::string operator()(const Gemm& g) const {
    return fmt::format("gemm {} x {} x {} {}", g.m, g.n, g.k, Word(g.use));
  }
  std::string operator()(const Attention& a) const {
    return fmt::format("attention {} x {} heads ({} of keys) x {} x {}{}{} {}", a.batch, a.heads,
                       a.kv_heads, a.sequence, a.head_dim, a.causal ? " causal" : "",
                       a.window > 0 ? fmt::format(" window {}", a.window) : "", Word(a.backward));
  }
  std::string operator()(const Norm& n) const {
    return fmt::format("norm {} x {} {}", n.rows, n.width, Word(n.part));
  }
  std::string operator()(const Elementwise& e) const {
    return fmt::format("elementwise {} bytes", e.bytes_moved);
  }
  std::string operator()(const Embedding& e) const {
    return fmt::format("embedding {} x {} {}", e.tokens, e.width, Word(e.backward));
  }
  std::string operator()(const Loss& l) const {
    return fmt::format("loss {} x {} {}", l.tokens, l.vocabulary, Word(l.backward));
  }
};

}  // namespace

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
  }
  return "";
}

std::string_view Name(KernelClass kernel_class) {
  switch (kernel_class) {
    case KernelClass::kProduct:
      return "product";
    case KernelClass::kAttention:
      return "attention";
    case KernelClass::kStreaming:
      return "streaming";
  }
  return "";
}

KernelClass ClassOf(const Kernel& kernel) {
  if (std::holds_alternative<Gemm>(kernel)) return KernelClass::kProduct;
  if (std::holds_alternative<Attention>(kernel)) return KernelClass::kAttention;
  return KernelClass::kStreaming;
}

Bytes SizeOf(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

DType ParseDType(std::string_view name) {
  if (name == "float32" || name == "fp32") return DType::kFloat32;
  if (name == "bfloat16" || name == "bf16") return DType::kBFloat16;
  if (name == "float16" || name == "fp16") return DType::kFloat16;
  throw InputError(fmt::format("there is no dtype \"{}\"", name),
                   "there are float32, bfloat16 and float16");
}

double AttendedPairs(const Attention& a) {
  const double s = AsDouble(a.sequence);
  const double w = a.window > 0 ? std::min(AsDouble(a.window), s) : s;
  // The first w tokens see 1, 2, ... w; each later one w. A window without a mask reaches as far
  // to the other side.
  const double causal = w * (w + 1) / 2 + (s - w) * w;
  return a.causal ? causal : 2 * causal - s;
}

double Flops(const Kernel& kernel) { return std::visit(FlopsOf{}, kernel); }

Bytes BytesMoved(const Kernel& kernel) { return std::visit(BytesOf{}, kernel); }

int64_t RowsOf(const Kernel& kernel) { return std::visit(RowsIn{}, kernel); }

std::string ToString(const Kernel& kernel) { return std::visit(TextOf{}, kernel); }

}  // namespace spiritlevel
