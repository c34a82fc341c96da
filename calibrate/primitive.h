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
  kNormBackward,
  kElementwise,
  kEmbeddingForward,
  kEmbeddingBackward,
  kLossForward,
  kLossBackward,
  kOptimizer,
  kHandOver,
};
inline constexpr int kNumPrimitives = 14;

struct PrimitiveInfo {
  Primitive primitive;
  std::string_view name;  // "gemm_forward"
  std::string_view unit;  // "FLOP"
  std::string_view contains;
};

std::span<const PrimitiveInfo> Primitives();
const PrimitiveInfo& InfoOf(Primitive primitive);
const PrimitiveInfo* FindPrimitive(std::string_view name);  // null if there is none

// Products have a curve, all others a line.
bool HasCurve(Primitive primitive);

RateCurve& CurveOf(DeviceProfile* profile, Primitive primitive);
const RateCurve& CurveOf(const DeviceProfile& profile, Primitive primitive);
GemmPadding& PaddingOf(DeviceProfile* profile, Primitive primitive);
const GemmPadding& PaddingOf(const DeviceProfile& profile, Primitive primitive);
LinearFit LineOf(const DeviceProfile& profile, Primitive primitive);
void SetLine(DeviceProfile* profile, Primitive primitive, const LinearFit& line);

}  // namespace spiritlevel
