#include "cli/output_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "cli/output.h"

namespace spiritlevel {

void WriteOutputs(const std::vector<OutputText>& outputs, const std::vector<std::string>& inputs) {
  std::vector<std::string> written;
  for (const OutputText& output : outputs) {
    if (!output.path) continue;
    try {
      WriteOutput(*output.path, output.text, inputs);
    } catch (const InputError& error) {
      if (written.empty()) throw;
      throw InputError(error.problem(),
                       fmt::format("{}{}written before: {}", error.way_out(),
                                   error.way_out().empty() ? "" : "\n", fmt::join(written, ", ")));
    }
    written.push_back(*output.path == "-" ? "standard output" : *output.path);
  }
}

}  // namespace spiritlevel
