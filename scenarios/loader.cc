#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "proto/scenario.pb.h"
#include "scenarios/convert.h"
#include "scenarios/scenario.h"
#include "scenarios/source.h"

namespace spiritlevel {
namespace {

// 64 ranks x 1024 micro-batches, each with an entry of its own, are about 8 MB.
constexpr size_t kMaxFileBytes = size_t{12} << 20;
constexpr const char* kStartHere = "scenarios/example.textproto is one to start from";

std::optional<ScenarioFormat> FormatByEnding(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending == ".json") return ScenarioFormat::kJson;
  if (ending == ".textproto" || ending == ".txtpb" || ending == ".pbtxt") {
    return ScenarioFormat::kText;
  }
  return std::nullopt;
}

std::string ReadScenarioFile(const std::filesystem::path& path) {
  try {
    return ReadFile(path, kMaxFileBytes);
  } catch (const InputError& error) {
    throw InputError(error.problem(), kStartHere);
  }
}

void RefuseWhatIsNotText(std::string_view text, std::string_view name) {
  if (text.find('\0') != std::string_view::npos || !IsUtf8(text)) {
    throw InputError(fmt::format("{}: is not text", name),
                     "a scenario is protobuf text format or JSON, saved as UTF-8");
  }
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  if (std::all_of(text.begin(), text.end(), blank)) {
    throw InputError(fmt::format("{}: is empty", name), kStartHere);
  }
}

// Of short fields a file may have millions, and finding fault with them takes longer than anybody
// waits. A message takes as long as a few fields. In JSON, a table of 64 x 1024 entries with eleven
// fields each comes to 1.7 million.
void RefuseTooManyFields(std::string_view text, std::string_view name) {
  constexpr int64_t kMost = 1'750'000;
  constexpr int64_t kMessage = 4;
  const auto times = [text](char c) { return std::count(text.begin(), text.end(), c); };
  const int64_t fields = times(':') + times(',') + kMessage * (times('{') + times('<'));
  if (fields <= kMost) return;
  throw InputError(fmt::format("{}: has about {} fields and entries of lists, more than {}", name,
                               fields, kMost),
                   "use uniform costs, or fewer ranks or micro_batches");
}

// Some editors put one before UTF-8; neither library takes it.
std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  return text;
}

}  // namespace

Scenario ParseScenario(std::string_view text, ScenarioFormat format,
                       std::string_view name_for_errors) {
  text = WithoutByteOrderMark(text);
  RefuseWhatIsNotText(text, name_for_errors);
  RefuseTooManyFields(text, name_for_errors);
  const Source source{.text = text, .format = format, .name = name_for_errors};
  proto::Scenario message;
  ReadMessage(source, &message);
  return ConvertScenario(message, source);
}

Scenario LoadScenario(const std::filesystem::path& path) {
  const std::optional<ScenarioFormat> format = FormatByEnding(path);
  std::error_code ignored;
  if (!format && std::filesystem::is_regular_file(path, ignored)) {
    throw InputError(
        fmt::format("{}: does not say by its ending which format it is in", path.string()),
        "name it .textproto (or .txtpb, .pbtxt) for protobuf text format, or .json");
  }
  const std::string text = ReadScenarioFile(path);
  return ParseScenario(text, format.value_or(ScenarioFormat::kText), path.string());
}

}  // namespace spiritlevel
