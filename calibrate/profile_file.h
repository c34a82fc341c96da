// Profile files: protobuf text format (.textproto, .txtpb, .pbtxt) or JSON (.json), one schema
// (proto/profile.proto).
//
//   WriteFile(path, ProfileText(calibration, ProfileFormatOf(path)));
//   const DeviceProfile profile = LoadProfile(path).profile;
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "calibrate/calibration.h"

namespace spiritlevel {

enum class ProfileFormat { kText, kJson };

// By the ending. Throws InputError for any other.
ProfileFormat ProfileFormatOf(const std::filesystem::path& path);

std::string ProfileText(const Calibration& calibration, ProfileFormat format);

// Throws InputError with file, line and field for what is no profile. The fits must all be there
// and make sense; samples and the description of the machine may be left out.
Calibration LoadProfile(const std::filesystem::path& path);
Calibration ParseProfile(std::string_view text, ProfileFormat format,
                         std::string_view name_for_errors);

}  // namespace spiritlevel
