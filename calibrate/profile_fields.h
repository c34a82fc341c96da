// The parts of a profile file that stand in several places of it, read field by field. Internal to
// calibrate/.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "calibrate/calibration.h"
#include "calibrate/profile_source.h"
#include "proto/profile.pb.h"

namespace spiritlevel {

inline constexpr const char* kMeasure = "write a new one: spiritlevel calibrate -o FILE";

// `way` and `parent` are the way to the message that is read, for complaints.
class ProfileFields {
 public:
  explicit ProfileFields(const ProfileSource& source) : source_(source) {}

  static std::string Way(std::string_view parent, std::string_view field);

  double Number(std::string_view parent, std::string_view field, double value) const;
  // Of things; below zero there are none.
  int Count(std::string_view parent, std::string_view field, int value) const;
  double Required(std::string_view parent, std::string_view field, bool there, double value) const;
  double Factor(std::string_view parent, std::string_view field, bool there, double value) const;

  std::array<double, kNumKernelClasses> ReadByClass(std::string_view way,
                                                    const profile_proto::SlowdownByClass& in) const;
  Samples Read(const std::string& way, const profile_proto::Samples& in) const;
  Errors Read(const std::string& way, const profile_proto::Errors& in) const;
  Slowdown Read(const std::string& way, const profile_proto::Slowdown& in) const;
  // Without the shape of a product.
  Measurement Read(const std::string& way, const profile_proto::Measurement& in) const;
  Measurement Read(Primitive primitive, const std::string& way,
                   const profile_proto::Measurement& in) const;
  LinearFit ReadLine(const std::string& line, const profile_proto::Line& in) const;
  RateCurve ReadCurve(const std::string& curve, const profile_proto::Curve& in) const;
  GemmPadding ReadPadding(const std::string& curve, const profile_proto::Curve& in) const;

 protected:
  const ProfileSource& source_;
};

}  // namespace spiritlevel
