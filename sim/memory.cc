#include "sim/memory.h"

namespace spiritlevel {

std::string_view Name(MemoryCategory category) {
  constexpr std::array<std::string_view, kNumMemoryCategories> kNames = {
      "parameters",    "gradients",     "optimizer", "waiting_for_b",
      "waiting_for_w", "communication", "workspace", "framework"};
  return kNames[static_cast<size_t>(category)];
}

std::string_view Phrase(MemoryCategory category) {
  constexpr std::array<std::string_view, kNumMemoryCategories> kPhrases = {
      "parameters",       "gradients",
      "optimizer state",  "activations that wait for B",
      "what waits for W", "communication buffers",
      "workspace",        "the framework's"};
  return kPhrases[static_cast<size_t>(category)];
}

}  // namespace spiritlevel
