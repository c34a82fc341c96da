// On which line of a file a field stands. Internal to calibrate/.
//
// One small scanner for protobuf text format and JSON, which agree on names, braces and brackets.
// It is run only to word a complaint, on text that the real parsers have accepted, or up to the
// place where they stopped.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace spiritlevel {

// A field's way through the file: its name and, of several with that name, which.
struct FieldStep {
  std::string_view name;
  int index = 0;

  friend bool operator==(const FieldStep&, const FieldStep&) = default;
};

// Calls `visit` for each field and list element, in order, until it returns false.
void ScanFields(std::string_view text, bool json,
                const std::function<bool(const std::vector<FieldStep>& way, int line)>& visit);

// `path` as in "primitive[3].line.base_ns", indices of 0 left out or not. 0 if it is not there.
int LineOfField(std::string_view text, bool json, std::string_view path);

}  // namespace spiritlevel
