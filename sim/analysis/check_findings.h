// What the checkers find wrong, in words, and few of them: one mistake in a generator breaks a rule
// a thousand times over, and a person reads five.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spiritlevel {

// One thing that is wrong. `rule` is a stable name: "missing_pass", "deadlock", ...
struct Finding {
  std::string rule;
  std::string what;
};

// Keeps the first few findings of each rule and counts the rest.
class FindingList {
 public:
  static constexpr int64_t kMaxPerRule = 5;

  // `say` returns the words; it is not called once a rule has had its share.
  template <class Say>
  void Add(std::string_view rule, Say&& say) {
    Kept& kept = Of(rule);
    if (++kept.seen <= kMaxPerRule) kept.findings.push_back({std::string(rule), say()});
  }

  // By rule, in the order in which the rules were first broken.
  std::vector<Finding> Take() {
    std::vector<Finding> all;
    for (Kept& kept : rules_) {
      for (Finding& finding : kept.findings) all.push_back(std::move(finding));
      if (kept.seen <= kMaxPerRule) continue;
      all.push_back({kept.rule, "and " + std::to_string(kept.seen - kMaxPerRule) + " more"});
    }
    rules_.clear();
    return all;
  }

 private:
  struct Kept {
    std::string rule;
    int64_t seen = 0;
    std::vector<Finding> findings;
  };

  Kept& Of(std::string_view rule) {
    for (Kept& kept : rules_) {
      if (kept.rule == rule) return kept;
    }
    rules_.push_back({std::string(rule), 0, {}});
    return rules_.back();
  }

  std::vector<Kept> rules_;
};

}  // namespace spiritlevel
