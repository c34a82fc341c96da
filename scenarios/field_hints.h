// What to tell somebody who wrote a field that a message does not have. Internal to scenarios/.
#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Descriptor;
}  // namespace google::protobuf

namespace spiritlevel {

// The way out: "did you mean micro_batches?" for a slip of the pen, "it belongs in costs.uniform"
// for the right name in the wrong place, otherwise the fields there are. `root` is the type of the
// whole file, `type` that of the message in which `name` was found.
std::string HintForUnknownField(const google::protobuf::Descriptor* root,
                                const google::protobuf::Descriptor* type, std::string_view name);

}  // namespace spiritlevel
