#include "models/hf_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/hf_config.h"

namespace spiritlevel {
namespace {

using nlohmann::json;

// Counted before parsing: a parser that builds a tree spends memory on every level, and what walks
// the tree afterwards would recurse.
int DeepestNesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

std::string PlaceOf(std::string_view text, size_t byte) {
  const size_t end = std::min(byte, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '\n');
  return fmt::format("line {}", line);
}

// Of a message of the library, only what comes after its own code and place.
std::string_view Reason(std::string_view message) {
  if (const size_t code = message.find("] "); code != std::string_view::npos) {
    message.remove_prefix(code + 2);
  }
  const size_t colon = message.starts_with("parse error") ? message.find(": ") : message.npos;
  if (colon != std::string_view::npos) message.remove_prefix(colon + 2);
  return message.substr(0, std::min(message.find(';'), size_t{120}));
}

json Parsed(std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    throw InputError(
        fmt::format("{}: is not JSON: {}", PlaceOf(text, error.byte), Reason(error.what())),
        "a config.json is one object in { }; download it again if it is cut off");
  } catch (const json::exception& error) {
    throw InputError(fmt::format("cannot be read: {}", Reason(error.what())),
                     "write numbers that a 64-bit float can hold");
  }
}

// Of an object that gives a field twice, parsers keep one in silence. Looks at text that has been
// parsed already.
class DoubledKeys {
 public:
  explicit DoubledKeys(std::string_view text) : text_(text) {}

  void Refuse() {
    for (size_t at = 0; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '{' || c == '[') open_.emplace_back();
      if (c == '}' || c == ']') open_.pop_back();
      if (c != '"') continue;
      const size_t begin = at;
      for (++at; text_[at] != '"'; ++at) at += text_[at] == '\\' ? 1 : 0;
      if (IsKey(at + 1)) Meet(text_.substr(begin, at + 1 - begin), begin);
    }
  }

 private:
  bool IsKey(size_t after) const {
    const size_t next = text_.find_first_not_of(" \t\r\n", after);
    return next != std::string_view::npos && text_[next] == ':';
  }

  void Meet(std::string_view quoted, size_t at) {
    const json key = json::parse(quoted);  // for its escapes
    if (open_.back().insert(key.get<std::string>()).second) return;
    throw InputError(fmt::format("{}: {} is given twice", PlaceOf(text_, at), ShortText(key)),
                     "keep one of the two");
  }

  std::string_view text_;
  std::vector<std::set<std::string>> open_;  // the names in each object that is open
};

// What a value is, where it should be a whole number.
std::string_view KindOf(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "text";
    case json::value_t::number_float: {
      const double number = value.get<double>();
      if (number != std::floor(number)) return "not whole";
      return std::abs(number) < 1e15 ? "not written as a whole number" : "far too large";
    }
    default:
      return "no number";
  }
}

InputError WrongSize(const char* key, const json& value, int64_t most) {
  return InputError(fmt::format("{}: {} is not between 1 and {}", key, ShortText(value), most),
                    "write the model's own number");
}

int64_t WholeNumber(const char* key, const json& value, int64_t most) {
  if (!value.is_number_integer()) {
    throw InputError(fmt::format("{}: {} is {}", key, ShortText(value), KindOf(value)),
                     fmt::format("write a whole number from 1 to {}", most));
  }
  const bool too_large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (too_large || value.get<int64_t>() < 1 || value.get<int64_t>() > most) {
    throw WrongSize(key, value, most);
  }
  return value.get<int64_t>();
}

}  // namespace

json ParseConfigText(std::string_view text) {
  if (text.size() > kMaxConfigBytes) {
    throw InputError(fmt::format("{} bytes are too many for a config", text.size()),
                     "give the model's config.json, not its weights");
  }
  if (DeepestNesting(text) > kMaxConfigNesting) {
    throw InputError(fmt::format("is nested more than {} deep", kMaxConfigNesting),
                     "a config.json has a few levels; download it again");
  }
  json object = Parsed(text);
  DoubledKeys(text).Refuse();
  if (!object.is_object()) {
    throw InputError(
        fmt::format("is {}, not a config", object.is_array() ? "a list" : "a single value"),
        "a config.json is one object in { }");
  }
  return object;
}

std::string ShortText(const json& value) {
  constexpr size_t kMost = 40;
  if (value.is_structured()) return value.is_object() ? "{...}" : "[...]";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

const json* HfFields::Find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool HfFields::IsNull(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

bool HfFields::Has(const char* key) const { return Find(key) != nullptr; }

std::optional<int64_t> HfFields::Optional(const char* key, int64_t most) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return WholeNumber(key, *value, most);
}

int64_t HfFields::Required(const char* key, int64_t most) const {
  const std::optional<int64_t> value = Optional(key, most);
  if (value) return *value;
  throw InputError(fmt::format("{}: is missing", key),
                   "write it as in the model's own config.json");
}

int64_t HfFields::OrTake(const char* key, int64_t most, int64_t fallback,
                         std::string_view formula) {
  const std::optional<int64_t> value = Optional(key, most);
  if (value) return *value;
  Assume(fmt::format("{} absent: taken as {} = {}", key, formula, fallback));
  return fallback;
}

bool HfFields::Flag(const char* key, bool fallback) {
  const json* value = Find(key);
  if (value == nullptr) {
    Assume(fmt::format("{} absent: taken as {}, as the class does", key, fallback));
    return fallback;
  }
  if (!value->is_boolean()) {
    throw InputError(fmt::format("{}: {} is neither true nor false", key, ShortText(*value)),
                     "write true or false");
  }
  return value->get<bool>();
}

double HfFields::Probability(const char* key, double fallback) {
  const json* value = Find(key);
  if (value == nullptr) {
    if (fallback > 0) {
      Assume(fmt::format("{} absent: taken as {}, as the class does", key, fallback));
    }
    return fallback;
  }
  const double probability = value->is_number() ? value->get<double>() : -1;
  if (!(probability >= 0 && probability < 1)) {
    throw InputError(fmt::format("{}: {} is not a probability", key, ShortText(*value)),
                     "write a number from 0 to below 1");
  }
  return probability;
}

bool HfFields::IsPositive(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return false;
  if (!value->is_number() || value->get<double>() < 0) {
    throw InputError(fmt::format("{}: {} is not a number from 0", key, ShortText(*value)),
                     "write the model's own number, or null");
  }
  return value->get<double>() > 0;
}

std::optional<std::string> HfFields::Text(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    throw InputError(fmt::format("{}: {} is not text", key, ShortText(*value)),
                     "write it as in the model's own config.json");
  }
  return value->get<std::string>();
}

}  // namespace spiritlevel
