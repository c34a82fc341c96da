#include "calibrate/field_lines.h"

#include <algorithm>
#include <charconv>

namespace spiritlevel {
namespace {

bool IsWord(char c) {
  return c == '_' || c == '.' || c == '+' || c == '-' || (c >= '0' && c <= '9') ||
         (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

using Visit = std::function<bool(const std::vector<FieldStep>&, int)>;

class Scanner {
 public:
  Scanner(std::string_view text, bool json, const Visit& visit)
      : text_(text), json_(json), visit_(visit) {}

  void Run() {
    while (!done_ && at_ < text_.size()) Token();
  }

 private:
  // More than any message of ours has. A file may have any number, and comparing each with each
  // would take as long as its author likes.
  static constexpr size_t kMostNames = 64;

  // An object that is open: which names were met in it how often.
  struct Frame {
    std::vector<FieldStep> met;
    bool in_list = false;
  };

  void Token() {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return Word(Quoted());
    if (IsWord(c)) return Word(Bare());
    if (c == '#' && !json_) return SkipComment();
    ++at_;
    if (c == '\n') ++line_;
    if (c == '{' || c == '<') Open();
    if (c == '}' || c == '>') Close();
    if (c == '[' && !frames_.empty()) StartList();
    if (c == ']') EndList();
    if (c == ':') value_ = true;
    if (c == ',' || c == ';') Separate();
  }

  void SkipComment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  std::string_view Quoted() {
    const char quote = text_[at_++];
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size() && text_[at_] == '\n') ++line_;
      ++at_;
    }
    const size_t end = at_ < text_.size() ? at_++ : text_.size();
    at_ = std::min(at_, text_.size());
    return text_.substr(begin, end - begin);
  }

  std::string_view Bare() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // The top level of text format is an object without braces.
  Frame& Top() {
    if (frames_.empty()) frames_.emplace_back();
    return frames_.back();
  }

  void Word(std::string_view word) {
    if (frames_.empty() && json_) return;
    if (value_ || Top().in_list) {
      value_ = Top().in_list;
      return;
    }
    FieldStep step{.name = word};
    for (FieldStep& met : Top().met) {
      if (met.name == word) step.index = ++met.index;
    }
    if (step.index == 0 && Top().met.size() < kMostNames) Top().met.push_back(step);
    if (way_.size() == frames_.size()) way_.pop_back();
    way_.push_back(step);
    Tell();
  }

  void Open() {
    value_ = false;
    frames_.emplace_back();
    if (frames_.size() == 1 && !json_) frames_.emplace_back();
  }

  void Close() {
    if (way_.size() == frames_.size() && !way_.empty()) way_.pop_back();
    if (!frames_.empty()) frames_.pop_back();
    value_ = !frames_.empty() && frames_.back().in_list;
  }

  void StartList() {
    Top().in_list = true;
    value_ = true;
  }

  void EndList() {
    if (frames_.empty()) return;
    Top().in_list = false;
    value_ = false;
  }

  void Separate() {
    if (frames_.empty()) return;
    value_ = Top().in_list;
    if (!Top().in_list || way_.empty()) return;
    ++way_.back().index;
    Tell();
  }

  void Tell() { done_ = !visit_(way_, line_); }

  std::string_view text_;
  bool json_;
  const Visit& visit_;
  size_t at_ = 0;
  int line_ = 1;
  bool value_ = false;  // the next word is a value
  bool done_ = false;
  std::vector<Frame> frames_;
  std::vector<FieldStep> way_;  // one step for each open object, the last being its current field
};

std::vector<FieldStep> Parse(std::string_view path) {
  std::vector<FieldStep> way;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    const size_t bracket = part.find('[');
    FieldStep step{.name = part.substr(0, bracket)};
    if (bracket != std::string_view::npos) {
      std::from_chars(part.data() + bracket + 1, part.data() + part.size(), step.index);
    }
    way.push_back(step);
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  }
  return way;
}

}  // namespace

void ScanFields(std::string_view text, bool json, const Visit& visit) {
  Scanner(text, json, visit).Run();
}

int LineOfField(std::string_view text, bool json, std::string_view path) {
  const std::vector<FieldStep> wanted = Parse(path);
  int found = 0;
  ScanFields(text, json, [&](const std::vector<FieldStep>& way, int line) {
    if (way != wanted) return true;
    found = line;
    return false;
  });
  return found;
}

}  // namespace spiritlevel
