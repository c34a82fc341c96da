#include "base/check.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

namespace spiritlevel {
namespace {

std::string Indented(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out += "\n    ";
    out += text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

}  // namespace

InputError::InputError(std::string what, std::string way_out)
    : std::runtime_error(what + Indented(way_out)),
      problem_(std::move(what)),
      way_out_(std::move(way_out)) {}

InputError InputError::At(std::string_view place) const {
  return InputError(fmt::format("{}: {}", place, problem_), way_out_);
}

void ThrowInvariantError(const char* file, int line, const char* condition, const char* invariant) {
  // The file's name alone: where the program was built is nobody's business.
  throw InvariantError(fmt::format("{}:{}: {} ({})",
                                   std::filesystem::path(file).filename().string(), line, invariant,
                                   condition));
}

}  // namespace spiritlevel
