// Files damaged at random: each is a scenario or an InputError, never anything else. Worth most
// under sanitizers.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "tests/scenarios/texts.h"

namespace spiritlevel {
namespace {

std::string Contents(const char* path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

using Random = std::mt19937_64;

size_t Below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// One small damage: what slips of the hand, bad disks and careless scripts do.
void Damage(Random& random, std::string* text) {
  constexpr std::string_view kLikely = "{}[]:,\"'\\-.0123456789eE#\n _xnaif\xFF";
  static const std::string kWords[] = {"nan",
                                       "-inf",
                                       "1e308",
                                       "9223372036854775807",
                                       "-2147483648",
                                       "row {",
                                       "}",
                                       "micro_batch { index: 1 }",
                                       "ranks: 3",
                                       "\"ranks\": 3,",
                                       "null",
                                       "table {",
                                       "model {",
                                       "layers_per_stage: [2, 20]",
                                       "recompute: \"full\"",
                                       "split: \"even\"",
                                       "\\u0000"};
  const size_t at = Below(random, text->size());
  switch (random() % 6) {
    case 0:
      (*text)[at] = kLikely[Below(random, kLikely.size())];
      break;
    case 1:
      text->insert(at, 1, kLikely[Below(random, kLikely.size())]);
      break;
    case 2:
      text->erase(at, 1 + Below(random, 8));
      break;
    case 3:
      text->insert(at, kWords[Below(random, std::size(kWords))]);
      break;
    case 4:
      text->insert(at, text->substr(Below(random, text->size()), Below(random, 60)));
      break;
    default:
      (*text)[at] = static_cast<char>(random());
      break;
  }
}

// Returns how many of the damaged texts were still accepted.
int ExpectScenarioOrInputError(const std::string& original, ScenarioFormat format, int rounds) {
  int accepted = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    Random random(seed);
    std::string text = original;
    const size_t damages = 1 + Below(random, 4);
    for (size_t i = 0; i < damages && !text.empty(); ++i) Damage(random, &text);
    try {
      const Scenario s = ParseScenario(text, format, "scenarios/damaged");
      ++accepted;
      EXPECT_GE(s.ranks, 1);
      EXPECT_GE(s.micro_batches, 1);
      EXPECT_EQ(s.slices.table.empty(), s.model.has_value()) << "seed " << seed;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("scenarios/damaged", 0), 0u) << "seed " << seed;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << text;
    }
  }
  return accepted;
}

// Some damage is harmless (a comment, a digit) and most is not; were it all or none, this test
// would look at nothing.
TEST(Mutation, DamagedFilesAreScenariosOrInputErrors) {
  constexpr int kRounds = 3000;
  const struct {
    const char* path;
    ScenarioFormat format;
  } kFiles[] = {{"scenarios/example.textproto", ScenarioFormat::kText},
                {"scenarios/uneven-stages.textproto", ScenarioFormat::kText},
                {"scenarios/tinyllama-p4-m16.textproto", ScenarioFormat::kText},
                {"scenarios/example.json", ScenarioFormat::kJson}};
  for (const auto& file : kFiles) {
    SCOPED_TRACE(file.path);
    const std::string original = Contents(file.path);
    ASSERT_FALSE(original.empty());
    const int accepted = ExpectScenarioOrInputError(original, file.format, kRounds);
    EXPECT_GT(accepted, kRounds / 50);
    EXPECT_LT(accepted, kRounds * 9 / 10);
  }
}

TEST(Mutation, EveryPrefixOfAFileIsAScenarioOrAnInputError) {
  for (const ScenarioFormat format : {ScenarioFormat::kText, ScenarioFormat::kJson}) {
    const std::string original = Contents(
        format == ScenarioFormat::kText ? "scenarios/example.textproto" : "scenarios/example.json");
    for (size_t size = 0; size < original.size(); ++size) {
      try {
        ParseScenario(std::string_view(original).substr(0, size), format, "cut");
      } catch (const InputError&) {
      } catch (const std::exception& error) {
        ADD_FAILURE() << size << " bytes: " << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace spiritlevel
