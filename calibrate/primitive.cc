#include "calibrate/primitive.h"

#include <array>

#include "base/check.h"

namespace spiritlevel {
namespace {

using P = Primitive;

constexpr std::array<PrimitiveInfo, kNumPrimitives> kPrimitives = {{
    {P::kGemmForward, "gemm_forward", "FLOP", "Y = X W of a linear layer, no bias; cold operands"},
    {P::kGemmInputGrad, "gemm_input_grad", "FLOP", "dX = dY W^T of a linear layer; cold operands"},
    {P::kGemmWeightGrad, "gemm_weight_grad", "FLOP",
     "dW += X^T dY of a linear layer, no bias; cold operands"},
    {P::kAttentionForward, "attention_forward", "FLOP",
     "softmax(Q K^T) V by tiles, without projections and rotation; FLOP under the mask"},
    {P::kAttentionBackward, "attention_backward", "FLOP",
     "dQ, dK and dV, scores made again by tiles; FLOP are twice those of the forward"},
    {P::kNormForward, "norm_forward", "byte", "RMSNorm; bytes of its input and output"},
    {P::kNormBackward, "norm_backward", "byte",
     "RMSNorm, input and weight gradient each by itself; bytes of inputs and outputs"},
    {P::kElementwise, "elementwise", "byte",
     "SwiGLU forward, which stands for what streams through memory; bytes read and written"},
    {P::kEmbeddingForward, "embedding_forward", "byte",
     "rows copied from a large table; bytes read and written"},
    {P::kEmbeddingBackward, "embedding_backward", "byte",
     "gradients added to rows of a large table; bytes read and written"},
    {P::kLossForward, "loss_forward", "byte",
     "cross entropy of logits that are there, without the product of the head; bytes of logits"},
    {P::kLossBackward, "loss_backward", "byte",
     "logits replaced by their gradient, without the product of the head; bytes read and written"},
    {P::kOptimizer, "optimizer", "parameter",
     "sum of squares for the norm, clipping and AdamW, float32; no reduction between ranks"},
    {P::kHandOver, "hand_over", "byte",
     "one way of a tensor between two ranks, half of a round trip: signals and a copy, cold"},
}};

LinearFit DeviceProfile::*MemberOf(P primitive) {
  switch (primitive) {
    case P::kAttentionForward:
      return &DeviceProfile::attention_forward;
    case P::kAttentionBackward:
      return &DeviceProfile::attention_backward;
    case P::kNormForward:
      return &DeviceProfile::norm_forward;
    case P::kNormBackward:
      return &DeviceProfile::norm_backward;
    case P::kElementwise:
      return &DeviceProfile::elementwise;
    case P::kEmbeddingForward:
      return &DeviceProfile::embedding_forward;
    case P::kEmbeddingBackward:
      return &DeviceProfile::embedding_backward;
    case P::kLossForward:
      return &DeviceProfile::loss_forward;
    case P::kLossBackward:
      return &DeviceProfile::loss_backward;
    case P::kOptimizer:
      return &DeviceProfile::optimizer;
    default:
      return nullptr;
  }
}

}  // namespace

std::span<const PrimitiveInfo> Primitives() { return kPrimitives; }

const PrimitiveInfo& InfoOf(P primitive) {
  const PrimitiveInfo& info = kPrimitives[static_cast<size_t>(primitive)];
  SPIRITLEVEL_CHECK(info.primitive == primitive, "the table is in the order of the enumeration");
  return info;
}

const PrimitiveInfo* FindPrimitive(std::string_view name) {
  for (const PrimitiveInfo& info : kPrimitives) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

bool HasCurve(P primitive) { return primitive <= P::kGemmWeightGrad; }

// The first three primitives are the uses of a product, in the same order.
RateCurve& CurveOf(DeviceProfile* profile, P primitive) {
  SPIRITLEVEL_CHECK(HasCurve(primitive), "only products have a curve");
  return profile->gemm[static_cast<size_t>(primitive)];
}

const RateCurve& CurveOf(const DeviceProfile& profile, P primitive) {
  SPIRITLEVEL_CHECK(HasCurve(primitive), "only products have a curve");
  return profile.gemm[static_cast<size_t>(primitive)];
}

GemmPadding& PaddingOf(DeviceProfile* profile, P primitive) {
  SPIRITLEVEL_CHECK(HasCurve(primitive), "only products have a padding");
  return profile->gemm_padding[static_cast<size_t>(primitive)];
}

const GemmPadding& PaddingOf(const DeviceProfile& profile, P primitive) {
  SPIRITLEVEL_CHECK(HasCurve(primitive), "only products have a padding");
  return profile.gemm_padding[static_cast<size_t>(primitive)];
}

LinearFit LineOf(const DeviceProfile& profile, P primitive) {
  if (primitive == P::kHandOver) {
    return {.base_ns = profile.transfer_latency_ns, .per_unit_ns = profile.transfer_ns_per_byte};
  }
  SPIRITLEVEL_CHECK(!HasCurve(primitive), "products have a curve");
  return profile.*MemberOf(primitive);
}

void SetLine(DeviceProfile* profile, P primitive, const LinearFit& line) {
  SPIRITLEVEL_CHECK(!HasCurve(primitive), "products have a curve");
  if (primitive == P::kHandOver) {
    profile->transfer_latency_ns = line.base_ns;
    profile->transfer_ns_per_byte = line.per_unit_ns;
    return;
  }
  profile->*MemberOf(primitive) = line;
}

}  // namespace spiritlevel
