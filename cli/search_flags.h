// The flags that search and frontier share: what is searched for, and for how long.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace spiritlevel {

struct SearchFlags {
  std::string objective = "span";
  std::string placement = "linear";
  std::string tail = "barrier";
  std::string limits;  // --memory-limit; empty: the scenario's
  double seconds = 20;
  int64_t evaluations = 0;  // 0: not given, a budget of time
  uint64_t seed = 1;
  int threads = 0;

  // `limits_help` and `seconds_help` say what the two mean to the command.
  void AddTo(CLI::App& command, const std::string& limits_help, const std::string& seconds_help);
  // Throws InputError for a budget or a number of threads that makes no sense. The words are
  // checked where they are parsed: cli/search_words.h.
  void CheckBudget() const;

 private:
  bool by_count_ = false;
};

}  // namespace spiritlevel
