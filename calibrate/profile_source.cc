#include "calibrate/profile_source.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "calibrate/field_lines.h"

namespace spiritlevel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A profile nests five deep; no parser is led to the end of its stack.
constexpr int kMaxNesting = 20;
constexpr const char* kWayOut =
    "restore the file, or write a new one: spiritlevel calibrate -o FILE";

[[noreturn]] void RefuseAt(const ProfileSource& source, int line, std::string_view what) {
  throw InputError(fmt::format("{}:{}: {}", source.name, line, what), kWayOut);
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_) text_ = fmt::format("{}: {}", column + 1, Shown(message));
    if (line_ == 0) line_ = line + 1;
  }
  void AddWarning(int, int, const std::string&) override {}

  const std::optional<std::string>& text() const { return text_; }
  int line() const { return line_; }

 private:
  std::optional<std::string> text_;
  int line_ = 0;
};

void ReadText(const ProfileSource& source, Message* message) {
  const google::protobuf::LogSilencer quiet;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxNesting);
  const bool ok = parser.ParseFromString(std::string(source.text), message);
  if (error.text()) {
    throw InputError(fmt::format("{}:{}:{}", source.name, error.line(), *error.text()), kWayOut);
  }
  if (!ok) RefuseAt(source, 1, "is not protobuf text format");
}

// Judges syntax and depth, builds nothing. Its members are named by the library.
struct Syntax : nlohmann::json_sax<nlohmann::json> {
  const ProfileSource& source;
  int depth = 0;
  bool outer_is_object = false;

  explicit Syntax(const ProfileSource& s) : source(s) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override {
    outer_is_object = outer_is_object || depth == 0;
    return Deeper();
  }
  bool start_array(size_t) override { return Deeper(); }
  bool end_object() override { return --depth >= 0; }
  bool end_array() override { return --depth >= 0; }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    const size_t at = std::min(position, source.text.size());
    const auto lines =
        std::count(source.text.begin(), source.text.begin() + static_cast<int64_t>(at), '\n');
    RefuseAt(source, static_cast<int>(lines) + 1, "this is no JSON, or ends too early");
  }

  bool Deeper() {
    if (++depth > kMaxNesting) RefuseAt(source, 1, "is nested too deeply for a profile");
    return true;
  }
};

const FieldDescriptor* FindField(const Descriptor* type, std::string_view name) {
  const std::string text(name);
  const FieldDescriptor* field = type->FindFieldByName(text);
  return field != nullptr ? field : type->FindFieldByCamelcaseName(text);
}

// The library takes the last of several messages in silence, and has no place for other doubles.
void RefuseDoubledFields(const ProfileSource& source, const Descriptor* root) {
  ScanFields(source.text, /*json=*/true, [&](const std::vector<FieldStep>& way, int line) {
    const Descriptor* type = root;
    const FieldDescriptor* field = nullptr;
    for (const FieldStep& step : way) {
      field = type == nullptr ? nullptr : FindField(type, step.name);
      type = field == nullptr ? nullptr : field->message_type();
    }
    if (field != nullptr && !field->is_repeated() && way.back().index > 0) {
      RefuseAt(source, line, fmt::format("{}: is given twice", field->name()));
    }
    return true;
  });
}

// The library leaves null out of a list, and what comes after it moves up. Looks at text whose
// syntax has been judged.
class NullsInLists {
 public:
  explicit NullsInLists(const ProfileSource& source) : source_(source), text_(source.text) {}

  void Refuse() {
    std::string_view word;
    for (size_t at = 0; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '"') {
        word = Quoted(&at);
      } else if (c == '{' || c == '[') {
        open_.push_back({.name = word, .list = c == '['});
      } else if (c == '}' || c == ']') {
        open_.pop_back();
      } else if (c == ',') {
        ++open_.back().index;
      } else if (c == 'n') {
        if (open_.back().list) Fail(at);
        at += std::string_view("null").size() - 1;
      }
    }
  }

 private:
  struct Level {
    std::string_view name;  // of the list's field
    bool list = false;
    int index = 0;
  };

  std::string_view Quoted(size_t* at) const {
    const size_t begin = ++*at;
    for (; text_[*at] != '"'; ++*at) *at += text_[*at] == '\\' ? 1 : 0;
    return text_.substr(begin, *at - begin);
  }

  [[noreturn]] void Fail(size_t at) const {
    const auto lines = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at), '\n');
    RefuseAt(source_, static_cast<int>(lines) + 1,
             fmt::format("{}[{}]: is null, and no entry of a list", Shown(open_.back().name),
                         open_.back().index));
  }

  const ProfileSource& source_;
  std::string_view text_;
  std::vector<Level> open_;
};

void ReadJson(const ProfileSource& source, Message* message) {
  const google::protobuf::LogSilencer quiet;
  Syntax syntax(source);
  nlohmann::json::sax_parse(source.text, &syntax);
  if (syntax.outer_is_object) NullsInLists(source).Refuse();
  RefuseDoubledFields(source, message->GetDescriptor());
  const google::protobuf::util::Status status =
      google::protobuf::util::JsonStringToMessage(std::string(source.text), message);
  if (!status.ok()) {
    // "(primitive[0].line.base_ns): invalid value ..."
    const std::string text(status.message());
    const size_t close = text.find("): ");
    int line = 0;
    if (text.starts_with("(") && close != std::string::npos) {
      line = LineOfField(source.text, true, std::string_view(text).substr(1, close - 1));
    }
    RefuseAt(source, std::max(line, 1), Shown(text));
  }
}

}  // namespace

void ProfileSource::Refuse(std::string_view field, std::string_view what,
                           std::string_view way_out) const {
  int line = 0;
  for (std::string_view at = field; line == 0 && !at.empty();) {
    line = LineOfField(text, format == ProfileFormat::kJson, at);
    const size_t dot = at.rfind('.');
    at = dot == std::string_view::npos ? std::string_view() : at.substr(0, dot);
  }
  const std::string place = line > 0 ? fmt::format("{}:{}", name, line) : std::string(name);
  throw InputError(fmt::format("{}: {}: {}", place, field, what), std::string(way_out));
}

void ReadProfileMessage(const ProfileSource& source, Message* message) {
  if (source.text.find('\0') != std::string_view::npos || !IsUtf8(source.text)) {
    throw InputError(fmt::format("{}: is not text", source.name), kWayOut);
  }
  if (source.format == ProfileFormat::kJson) return ReadJson(source, message);
  ReadText(source, message);
}

}  // namespace spiritlevel
