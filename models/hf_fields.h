// The fields of a config, read with their types and bounds checked and every default written down.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace spiritlevel {

// Text -> JSON object. Throws InputError, without a place for `file`, for what is no JSON object,
// too long, or nested too deeply to be a config.
nlohmann::json ParseConfigText(std::string_view text);

// A value as a message shows it: short, and on one line.
std::string ShortText(const nlohmann::json& value);

class HfFields {
 public:
  explicit HfFields(const nlohmann::json& object) : object_(object) {}

  // Absent and null are both "not there".
  bool Has(const char* key) const;
  const nlohmann::json* Find(const char* key) const;
  // Where a class tells the two apart.
  bool IsNull(const char* key) const;

  // Whole numbers from 1 to `most`.
  int64_t Required(const char* key, int64_t most) const;
  std::optional<int64_t> Optional(const char* key, int64_t most) const;
  // `formula` says in words how `fallback` came about: "num_attention_heads".
  int64_t OrTake(const char* key, int64_t most, int64_t fallback, std::string_view formula);

  // `fallback` is what transformers' class takes.
  bool Flag(const char* key, bool fallback);
  // A probability; 0 when not there and `fallback` is 0, without a word.
  double Probability(const char* key, double fallback);
  // Whether there is a number above 0.
  bool IsPositive(const char* key) const;
  std::optional<std::string> Text(const char* key) const;

  void Assume(std::string line) { assumptions_.push_back(std::move(line)); }
  std::vector<std::string> TakeAssumptions() { return std::move(assumptions_); }

 private:
  const nlohmann::json& object_;
  std::vector<std::string> assumptions_;
};

}  // namespace spiritlevel
