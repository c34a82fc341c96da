// The text of a profile file turned into its message, and complaints with their place. Internal to
// calibrate/.
#pragma once

#include <string>
#include <string_view>

#include "calibrate/profile_file.h"

namespace google::protobuf {
class Message;
}

namespace spiritlevel {

struct ProfileSource {
  std::string_view text;
  ProfileFormat format = ProfileFormat::kText;
  std::string_view name;

  // "FILE:LINE: FIELD: what"; the line is that of the innermost field on the way that is there.
  [[noreturn]] void Refuse(std::string_view field, std::string_view what,
                           std::string_view way_out) const;
};

// Fills `message`, which must be empty. Throws InputError for bad syntax, unknown and doubled
// fields, and values of the wrong kind.
void ReadProfileMessage(const ProfileSource& source, google::protobuf::Message* message);

}  // namespace spiritlevel
