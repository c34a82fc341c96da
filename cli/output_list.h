// Several outputs of one command, written one after the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace spiritlevel {

struct OutputText {
  std::optional<std::string> path;  // nothing: not asked for
  std::string text;
};

// As WriteOutput(). Where one cannot be written, the InputError says which have been: a full disk
// leaves the first ones behind.
void WriteOutputs(const std::vector<OutputText>& outputs, const std::vector<std::string>& inputs);

}  // namespace spiritlevel
