// Protobuf text format, read by the library; its errors get a place and a way out.
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "scenarios/field_hints.h"
#include "scenarios/source.h"

namespace spiritlevel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// As the library counts: from 0, a tab reaching to the next multiple of 8.
struct LibraryError {
  int line = 0;
  int column = 0;
  std::string message;
};

// Keeps the first error; later ones are usually its consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!error_) error_ = LibraryError{line, column, message};
  }
  void AddWarning(int, int, const std::string&) override {}

  const std::optional<LibraryError>& error() const { return error_; }

 private:
  std::optional<LibraryError> error_;
};

std::string_view LineAt(std::string_view text, int line) {
  for (; line > 0; --line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// Bytes before `column`, which counts tabs as the library does.
size_t OffsetIn(std::string_view line, int column) {
  constexpr int kTab = 8;
  int at = 0;
  size_t offset = 0;
  while (offset < line.size() && at < column) {
    at += line[offset] == '\t' ? kTab - at % kTab : 1;
    ++offset;
  }
  return offset;
}

std::string_view Trimmed(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

bool IsNameCharacter(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// "ranks" if the line reads "ranks: <here>", else nothing.
std::string_view FieldBefore(std::string_view line, size_t offset) {
  std::string_view before = Trimmed(line.substr(0, offset));
  if (before.empty() || before.back() != ':') return {};
  before.remove_suffix(1);
  before = Trimmed(before);
  size_t begin = before.size();
  while (begin > 0 && IsNameCharacter(before[begin - 1])) --begin;
  return before.substr(begin);
}

// The parts of `message` that stand between double quotes.
std::vector<std::string> Quoted(std::string_view message) {
  std::vector<std::string> out;
  while (true) {
    const size_t begin = message.find('"');
    if (begin == std::string_view::npos) return out;
    const size_t end = message.find('"', begin + 1);
    if (end == std::string_view::npos) return out;
    out.emplace_back(message.substr(begin + 1, end - begin - 1));
    message.remove_prefix(end + 1);
  }
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What was being read is shown, since many such errors are seen at a glance.
std::string Excerpt(std::string_view line) {
  return fmt::format("the line reads: {}", Shown(Trimmed(line), 72));
}

// The library's messages for the common mistakes, in the words of the rest of ours.
InputError Explained(const Source& source, const LibraryError& error, const Descriptor* root) {
  const std::string here = source.At(error.line + 1);
  const std::vector<std::string> quoted = Quoted(error.message);
  if (Contains(error.message, "has no field named") && quoted.size() == 2) {
    const Descriptor* type = root->file()->pool()->FindMessageTypeByName(quoted[0]);
    return InputError(fmt::format("{}: {}: there is no such field here", here, Shown(quoted[1])),
                      type == nullptr ? "" : HintForUnknownField(root, type, quoted[1]));
  }
  if (Contains(error.message, "is specified multiple times") && !quoted.empty()) {
    return InputError(fmt::format("{}: {}: is given twice", here, quoted[0]),
                      "keep one of the two");
  }
  if (Contains(error.message, "another member of oneof") && quoted.size() >= 2) {
    return InputError(fmt::format("{}: {}: stands beside {}", here, quoted[0], quoted[1]),
                      fmt::format("give either {} or {}, not both", quoted[1], quoted[0]));
  }
  const std::string_view line = LineAt(source.text, error.line);
  const size_t offset = OffsetIn(line, error.column);
  if (error.message == "Expected identifier, got: ") {
    return InputError(fmt::format("{}:{}: the file ends inside a {{", here, offset + 1),
                      "close it with }");
  }
  const std::string_view field = FieldBefore(line, offset);
  if (!field.empty()) {
    return InputError(fmt::format("{}: {}: {}", here, field, Shown(error.message)), Excerpt(line));
  }
  return InputError(fmt::format("{}:{}: {}", here, offset + 1, Shown(error.message)),
                    Excerpt(line));
}

// "row[2].forward_us" -> "row", 2, leaving "forward_us"; index -1 where there is none.
struct Step {
  std::string name;
  int index = -1;
};

Step NextStep(std::string_view* path) {
  const size_t dot = path->find('.');
  std::string_view part = path->substr(0, dot);
  path->remove_prefix(dot == std::string_view::npos ? path->size() : dot + 1);
  Step step;
  const size_t bracket = part.find('[');
  step.name = part.substr(0, bracket);
  if (bracket != std::string_view::npos) {
    std::from_chars(part.data() + bracket + 1, part.data() + part.size(), step.index);
  }
  return step;
}

bool Parse(const Source& source, Message* message, FirstError* errors,
           TextFormat::ParseInfoTree* locations) {
  const google::protobuf::LogSilencer quiet;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(errors);
  parser.SetRecursionLimit(kMaxNesting);
  if (locations != nullptr) parser.WriteLocationsTo(locations);
  return parser.ParseFromString(std::string(source.text), message);
}

}  // namespace

void ReadTextMessage(const Source& source, Message* message) {
  FirstError errors;
  const bool ok = Parse(source, message, &errors, nullptr);
  if (errors.error()) throw Explained(source, *errors.error(), message->GetDescriptor());
  if (!ok) throw InputError(fmt::format("{}: is not protobuf text format", source.name));
}

int LineOfText(const Source& source, const Descriptor* type, std::string_view path) {
  FirstError ignored;
  TextFormat::ParseInfoTree locations;
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
  Parse(source, message.get(), &ignored, &locations);

  const TextFormat::ParseInfoTree* tree = &locations;
  int line = -1;
  while (!path.empty()) {
    const Step step = NextStep(&path);
    const FieldDescriptor* field = type->FindFieldByName(step.name);
    if (field == nullptr || tree == nullptr) return 0;
    // A list without an index means its first element; the library refuses to be asked for -1.
    const int index = field->is_repeated() ? std::max(step.index, 0) : -1;
    line = tree->GetLocation(field, index).line;
    type = field->message_type();
    if (type == nullptr || line < 0) break;
    tree = tree->GetTreeForNested(field, index);
  }
  return line + 1;
}

}  // namespace spiritlevel
