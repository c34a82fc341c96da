// JSON, read by protobuf's own mapping. Before that a walk over the text finds what that mapping
// lets pass or reports without a place: syntax, nesting, unknown and doubled fields. It builds
// nothing and does not recurse.
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "scenarios/field_hints.h"
#include "scenarios/source.h"

namespace spiritlevel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Hands characters to the JSON library and shows how far it has read.
class TrackedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}

  reference operator*() const { return *at_; }
  TrackedIterator& operator++() {
    ++at_;
    *furthest_ = at_;
    return *this;
  }
  TrackedIterator operator++(int) {
    TrackedIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const TrackedIterator& a, const TrackedIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** furthest_;
};

// Follows the text through the schema. Throws InputError at the first thing that does not fit.
class Walk {
 public:
  // With `wanted`, finds the line of the field at that path; see line().
  Walk(const Source& source, const Descriptor* root, std::string_view wanted)
      : source_(source), root_(root), wanted_(wanted), at_(source.text.data()) {}

  // False when the text has no such field.
  bool Run() {
    const char* const end = source_.text.data() + source_.text.size();
    return nlohmann::json::sax_parse(TrackedIterator(source_.text.data(), &at_),
                                     TrackedIterator(end, &at_), this);
  }

  int line() const { return line_; }

  // What the JSON library calls, by its names; false ends the walk.
  bool null() { return Scalar("null"); }
  bool boolean(bool) { return Scalar("true or false"); }
  bool number_integer(nlohmann::json::number_integer_t) { return Scalar(kNumber); }
  bool number_unsigned(nlohmann::json::number_unsigned_t) { return Scalar(kNumber); }
  bool number_float(nlohmann::json::number_float_t, const std::string&) { return Scalar(kNumber); }
  bool string(const std::string&) { return Scalar("text"); }
  bool binary(const nlohmann::json::binary_t&) { return Scalar("binary"); }

  bool start_object(size_t) {
    if (frames_.empty()) {
      frames_.push_back({root_});
      return true;
    }
    Frame& frame = frames_.back();
    const Descriptor* type = frame.field->message_type();
    if (type == nullptr) Fail("is a single value", "write it without { }");
    NextElement(&frame);
    if (frames_.size() >= kMaxNesting) Fail("is nested too deeply", "");
    const bool go_on = Visit();
    frames_.push_back({type});
    return go_on;
  }

  bool end_object() {
    frames_.pop_back();
    return true;
  }

  bool start_array(size_t) {
    if (frames_.empty()) FailHere("starts with [", "a scenario starts with {");
    Frame& frame = frames_.back();
    if (frame.in_list || !frame.field->is_repeated()) {
      Fail("is a list where a single value is due", "write it without [ ]");
    }
    frame.in_list = true;
    return true;
  }

  bool end_array() {
    frames_.back().in_list = false;
    frames_.back().index = -1;
    return true;
  }

  bool key(const std::string& name) {
    Frame& frame = frames_.back();
    frame.field = Find(frame.type, name);
    frame.index = -1;
    if (frame.field == nullptr) {
      FailHere(fmt::format("{}: there is no such field here", Shown(name)),
               HintForUnknownField(root_, frame.type, name));
    }
    Meet(&frame);
    return Visit();
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    const size_t at = std::min(position == 0 ? 0 : position - 1, source_.text.size());
    const std::string_view before = source_.text.substr(0, at);
    const size_t newline = before.rfind('\n');
    const size_t column = newline == std::string_view::npos ? at : at - newline - 1;
    throw InputError(fmt::format("{}:{}: {}", source_.At(Line(before.data() + before.size())),
                                 column + 1, Shown(Shortened(error.what()), 200)),
                     WayOut(error));
  }

 private:
  static constexpr const char* kNumber = "a number";

  // An object that has been opened and not yet closed.
  struct Frame {
    const Descriptor* type = nullptr;
    const FieldDescriptor* field = nullptr;  // whose value comes next
    bool in_list = false;
    int index = -1;  // of the element, in a list
    std::vector<const FieldDescriptor*> met = {};
  };

  // Lines are counted only when somebody asks.
  int Line(const char* at) const {
    return static_cast<int>(std::count(source_.text.data(), at, '\n')) + 1;
  }

  // protobuf accepts both forms of a name, so we do.
  static const FieldDescriptor* Find(const Descriptor* type, const std::string& name) {
    const FieldDescriptor* field = type->FindFieldByName(name);
    return field != nullptr ? field : type->FindFieldByCamelcaseName(name);
  }

  void Meet(Frame* frame) {
    const FieldDescriptor* field = frame->field;
    for (const FieldDescriptor* other : frame->met) {
      if (other == field) Fail("is given twice", "keep one of the two");
      if (field->real_containing_oneof() != nullptr &&
          field->real_containing_oneof() == other->real_containing_oneof()) {
        Fail(fmt::format("stands beside {}", other->name()),
             fmt::format("give either {} or {}, not both", other->name(), field->name()));
      }
    }
    frame->met.push_back(field);
  }

  void NextElement(Frame* frame) {
    if (frame->in_list) {
      ++frame->index;
    } else if (frame->field->is_repeated()) {
      Fail("is a list", "put [ ] around its values");
    }
  }

  bool Scalar(std::string_view kind) {
    if (frames_.empty()) FailHere(fmt::format("holds only {}", kind), "a scenario starts with {");
    Frame& frame = frames_.back();
    if (kind == "null" && !frame.in_list) return true;  // as if it were not there
    NextElement(&frame);
    if (frame.field->message_type() != nullptr) {
      Fail(fmt::format("is {}, not an object", kind), "write it as { \"field\": value, ... }");
    }
    // The library leaves it out, and what comes after it moves up.
    if (kind == "null") Fail("is null, and no entry of a list", "give it a value, or leave it out");
    return true;
  }

  // Notes the line if this is the field somebody asked for; then the walk may end.
  bool Visit() {
    if (wanted_.empty() || Path() != wanted_) return true;
    line_ = Line(at_);
    return false;
  }

  std::string Path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.field == nullptr) break;
      if (!path.empty()) path += '.';
      path += frame.field->name();
      if (frame.index >= 0) path += fmt::format("[{}]", frame.index);
    }
    return path;
  }

  [[noreturn]] void Fail(const std::string& what, const std::string& way_out) const {
    FailHere(fmt::format("{}: {}", Path(), what), way_out);
  }
  [[noreturn]] void FailHere(const std::string& what, const std::string& way_out) const {
    throw InputError(fmt::format("{}: {}", source_.At(Line(at_)), what), way_out);
  }

  static const char* WayOut(const nlohmann::json::exception& error) {
    constexpr int kNumberOverflow = 406;  // as the library numbers its errors
    if (error.id == kNumberOverflow) return "use a smaller number";
    return "JSON has no comments, no comma after a last field, and quotes around names";
  }

  // Without the library's own name and place for the error.
  static std::string Shortened(std::string_view what) {
    if (const size_t code = what.find("] "); code != what.npos) what.remove_prefix(code + 2);
    const size_t column = what.starts_with("parse error") ? what.find("column ") : what.npos;
    const size_t colon = column == what.npos ? what.npos : what.find(": ", column);
    return std::string(colon == what.npos ? what : what.substr(colon + 2));
  }

  const Source& source_;
  const Descriptor* root_;
  std::string_view wanted_;
  const char* at_;
  int line_ = 0;
  std::vector<Frame> frames_;
};

std::string KindInWords(std::string_view type) {
  if (type.find("INT") != std::string_view::npos) return "a whole number of this size";
  if (type.find("DOUBLE") != std::string_view::npos) return "a number";
  if (type.find("STRING") != std::string_view::npos) return "text";
  return "a value of this kind";
}

// The library writes "(costs.uniform.forward_us): invalid value "x" for type TYPE_DOUBLE".
InputError Explained(const Source& source, std::string_view message, const Descriptor* root) {
  const size_t close = message.find("): ");
  if (message.substr(0, 1) != "(" || close == std::string_view::npos) {
    return InputError(fmt::format("{}: {}", source.name, Shown(message)));
  }
  const std::string_view path = message.substr(1, close - 1);
  std::string what(message.substr(close + 3));
  const std::string_view kind_marker = " for type ";
  const size_t kind = what.rfind(kind_marker);
  const std::string_view invalid = "invalid value ";
  if (kind != std::string::npos && what.rfind(invalid, 0) == 0) {
    what =
        fmt::format("{} is not {}", Shown(what.substr(invalid.size(), kind - invalid.size()), 40),
                    KindInWords(what.substr(kind + kind_marker.size())));
  }
  return InputError(
      fmt::format("{}: {}: {}", source.At(LineOfJson(source, root, path)), path, Shown(what)),
      "scenarios/README.md lists each field with its kind and range");
}

}  // namespace

void ReadJsonMessage(const Source& source, Message* message) {
  Walk(source, message->GetDescriptor(), "").Run();
  const google::protobuf::LogSilencer quiet;
  const google::protobuf::util::Status status =
      google::protobuf::util::JsonStringToMessage(std::string(source.text), message);
  if (!status.ok()) {
    throw Explained(source, std::string(status.message()), message->GetDescriptor());
  }
}

int LineOfJson(const Source& source, const Descriptor* type, std::string_view path) {
  Walk walk(source, type, path);
  walk.Run();
  return walk.line();
}

}  // namespace spiritlevel
