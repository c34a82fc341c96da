// Primitives: what a profile has one fit for. One table holds their names, units, and what their
// times contain, so that file, printed table and documentation say the same.
#pragma once

#include <span>
#include <string_view>

#include "models/device_profile.h"

namespace spiritlevel {

enum class Primitive : uint8_t {
  kGemmForward,
  kGemmInputGrad,
  kGemmWeightGrad,
  kAttentionForward,
  kAttentionBackward,
  kNormForward,
  kNormInputGrad,
  kNormWeightGrad,
  kElementwise,
  kEmbeddingForward,
  kEmbeddingBackward,
  kLossForward,
  kLossBackward,
  kOptimizer,
  kHandOver,
};
inline constexpr int kNumPrimitives = 15;

struct PrimitiveInfo {
  Primitive primitive;
  std::string_view name;  // "gemm_forward"
  std::string_view unit;  // "FLOP"
  std::string_view contains;
};

std::span<const PrimitiveInfo> Primitives();
const PrimitiveInfo& InfoOf(Primitive primitive);
const PrimitiveInfo* FindPrimitive(std::string_view name);  // null if there is none

// What may describe a primitive's time: of products, a curve over their padded size; a line of what
// is added up from parts, which are a message's latency and bandwidth and the optimizer's steps of
// several stages; of all others, either.
bool MayBeLine(Primitive primitive);
bool MayBeCurve(Primitive primitive);

SizeFit FitOf(const DeviceProfile& profile, Primitive primitive);
void SetFit(DeviceProfile* profile, Primitive primitive, SizeFit fit);

// Of products only.
bool IsProduct(Primitive primitive);
GemmPadding PaddingOf(const DeviceProfile& profile, Primitive primitive);
void SetPadding(DeviceProfile* profile, Primitive primitive, const GemmPadding& padding);

}  // namespace spiritlevel
