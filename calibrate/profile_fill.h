// The parts of a profile file that stand in several places of it, written. Internal to calibrate/.
#pragma once

#include <array>

#include "calibrate/calibration.h"
#include "proto/profile.pb.h"

namespace spiritlevel {

void Fill(const Samples& samples, profile_proto::Samples* out);
void Fill(const Errors& errors, profile_proto::Errors* out);
void Fill(const Measurement& m, profile_proto::Measurement* out);
void Fill(const RateCurve& curve, profile_proto::Curve* out);
void Fill(const GemmPadding& padding, profile_proto::Curve* out);
void Fill(const LinearFit& line, profile_proto::Line* out);
void Fill(const Slowdown& slowdown, profile_proto::Slowdown* out);
// Without what it contains.
void Fill(const std::array<double, kNumKernelClasses>& slowdown,
          profile_proto::SlowdownByClass* out);

}  // namespace spiritlevel
