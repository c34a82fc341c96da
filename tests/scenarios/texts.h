// Scenario texts that the tests of this folder start from, and what they say of errors.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"
#include "scenarios/scenario.h"

namespace spiritlevel {

// The example of the documentation, to the letter.
inline constexpr std::string_view kExample =
    R"(name: "gpt-1.5b, 8 ranks, 24 micro-batches"
ranks: 8
micro_batches: 24
costs {
  uniform {
    forward_us: 18522  input_grad_us: 18086  weight_grad_us: 9337
    transfer_us: 601            # latency of one hop between neighbouring ranks
    activation_bytes: 1000      # kept from F until B
    weight_state_bytes: 366     # kept from B until W
  }
}
memory_limit_bytes: 16000
)";

inline Scenario ParseText(std::string_view text) {
  return ParseScenario(text, ScenarioFormat::kText, "my.textproto");
}
inline Scenario ParseJson(std::string_view text) {
  return ParseScenario(text, ScenarioFormat::kJson, "my.json");
}

// The whole message, way out included; "no error" where the text is accepted.
template <typename Parse>
std::string ErrorOf(Parse parse) {
  try {
    parse();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}
inline std::string TextError(std::string_view text) {
  return ErrorOf([text] { ParseText(text); });
}
inline std::string JsonError(std::string_view text) {
  return ErrorOf([text] { ParseJson(text); });
}

// 8 ranks, 24 micro-batches, and in line 3 the given uniform form.
inline std::string WithUniform(const std::string& fields) {
  return "ranks: 8\nmicro_batches: 24\ncosts { uniform { " + fields + " } }\n";
}
// 2 ranks, 4 micro-batches; the given rows from line 4.
inline std::string WithRows(const std::string& rows) {
  return "ranks: 2\nmicro_batches: 4\ncosts { table {\n" + rows + "\n} }\n";
}

inline const std::string kPasses = "forward_us: 2 input_grad_us: 2 weight_grad_us: 1";

}  // namespace spiritlevel
