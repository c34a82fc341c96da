// Configs that nobody should have written: each is refused in a message, within a second.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <random>
#include <string>

#include "models/hf_config.h"
#include "models/parameters.h"
#include "tests/base/input_error_of.h"
#include "tests/base/temporary_folder.h"
#include "tests/models/configs.h"
#include "tests/models/stopwatch.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Whatever the text, it comes within a second.
std::string RefusalOfText(std::string_view text) {
  const Stopwatch watch;
  std::string refusal = InputErrorOf([&] { ParseHfConfig(text, "my.json"); });
  EXPECT_LT(watch.Seconds(), 1) << text.substr(0, 60) << ", " << text.size() << " bytes";
  return refusal;
}

std::string RefusalWith(const char* key, json value) {
  json config = Llama8B();
  config[key] = std::move(value);
  return RefusalOfText(config.dump());
}

TEST(BadConfig, TextThatIsNoJsonIsRefusedWithItsLine) {
  EXPECT_THAT(RefusalOfText(""), StartsWith("my.json: line 1: is not JSON"));
  EXPECT_THAT(RefusalOfText("{\n\"hidden_size\": ,\n}"),
              StartsWith("my.json: line 2: is not JSON"));
  EXPECT_THAT(RefusalOfText("[1, 2]"), HasSubstr("is a list, not a config"));
  EXPECT_THAT(RefusalOfText("NaN"), HasSubstr("is not JSON"));
  EXPECT_THAT(RefusalOfText("{\"hidden_size\": NaN}"), HasSubstr("is not JSON"));
  EXPECT_THAT(RefusalOfText("{\"hidden_size\": 1e999}"), StartsWith("my.json: cannot be read"));
  EXPECT_THAT(RefusalOfText("{\"\xff\": 1}"), HasSubstr("is not JSON"));
}

TEST(BadConfig, EveryTruncationIsRefused) {
  const std::string whole = Llama8B().dump();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(RefusalOfText(std::string_view(whole).substr(0, length)), "") << length;
  }
}

TEST(BadConfig, WrongTypesAreRefusedByFieldAndValue) {
  EXPECT_THAT(RefusalWith("hidden_size", "4096"),
              HasSubstr("my.json: hidden_size: \"4096\" is text"));
  EXPECT_THAT(RefusalWith("hidden_size", 4096.5), HasSubstr("hidden_size: 4096.5 is not whole"));
  EXPECT_THAT(RefusalWith("hidden_size", json::array({1})), HasSubstr("[...] is a list"));
  EXPECT_THAT(RefusalWith("hidden_size", true), HasSubstr("hidden_size: true is no number"));
  EXPECT_THAT(RefusalWith("hidden_size", 1e30), HasSubstr("1e+30 is far too large"));
  EXPECT_THAT(RefusalWith("hidden_size", 4096.0),
              HasSubstr("4096.0 is not written as a whole number"));
  EXPECT_THAT(RefusalWith("tie_word_embeddings", 1), HasSubstr("1 is neither true nor false"));
  EXPECT_THAT(RefusalWith("attention_dropout", "no"), HasSubstr("\"no\" is not a probability"));
  EXPECT_THAT(RefusalWith("architectures", "LlamaForCausalLM"), HasSubstr("is not a list"));
  EXPECT_THAT(RefusalWith("architectures", json::array({1})), HasSubstr("is not a list"));
  EXPECT_THAT(RefusalWith("architectures", json::array({"A", "B"})), HasSubstr("names 2 classes"));
  EXPECT_THAT(RefusalWith("model_type", 7), HasSubstr("model_type: 7 is not text"));
  EXPECT_THAT(RefusalWith("hidden_act", 7), HasSubstr("hidden_act: 7 is not text"));
}

TEST(BadConfig, SizesThatNoModelHasAreRefused) {
  EXPECT_THAT(RefusalWith("num_hidden_layers", 0), HasSubstr("0 is not between 1 and 10000"));
  EXPECT_THAT(RefusalWith("num_hidden_layers", -3), HasSubstr("-3 is not between"));
  EXPECT_THAT(RefusalWith("vocab_size", std::numeric_limits<int64_t>::min()), HasSubstr("between"));
  EXPECT_THAT(RefusalWith("vocab_size", std::numeric_limits<uint64_t>::max()),
              HasSubstr("between"));
  EXPECT_THAT(RefusalWith("head_dim", 1 << 20), HasSubstr("too wide"));
  EXPECT_THAT(RefusalWith("intermediate_size", int64_t{1} << 40), HasSubstr("intermediate_size"));
  EXPECT_THAT(RefusalWith("hidden_size", nullptr), HasSubstr("hidden_size: is missing"));
}

// The largest of everything: nothing overflows on the way to the refusal.
TEST(BadConfig, AModelBeyondAnyMachineIsRefused) {
  json config = Llama8B();
  config["hidden_size"] = kMaxModelWidth;
  config["intermediate_size"] = kMaxModelFfn;
  config["num_hidden_layers"] = kMaxModelLayers;
  config["num_attention_heads"] = config["num_key_value_heads"] = 4;
  config["head_dim"] = kMaxModelWidth;
  config["vocab_size"] = kMaxModelVocabulary;
  EXPECT_THAT(RefusalOfText(config.dump()), HasSubstr("parameters are beyond any machine"));
}

TEST(BadConfig, NestingIsRefusedBeforeItIsFollowed) {
  for (const int depth : {101, 1000, 1'000'000}) {
    for (const char* open : {"[", "{\"a\":"}) {
      std::string text = "{\"hidden_size\":";
      for (int i = 0; i < depth && text.size() + 10 < kMaxConfigBytes; ++i) text += open;
      EXPECT_THAT(RefusalOfText(text), HasSubstr("nested more than 100 deep")) << depth;
    }
  }
  // Brackets inside text are not nesting.
  EXPECT_EQ(RefusalWith("note", "\"" + std::string(1000, '[')), "");
}

TEST(BadConfig, AHundredMegabytesAreRefusedUnread) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "config.json";
  std::ofstream(path) << "{";
  std::filesystem::resize_file(path, 100 << 20);
  const Stopwatch watch;
  const std::string refusal = InputErrorOf([&] { LoadHfConfig(path); });
  EXPECT_LT(watch.Seconds(), 1);
  EXPECT_THAT(refusal, AllOf(StartsWith(path.string()), HasSubstr("104857600 bytes")));
  EXPECT_THAT(RefusalOfText(std::string(100 << 20, ' ')), HasSubstr("too many for a config"));
}

TEST(BadConfig, TheLargestConfigThatIsReadTakesLessThanASecond) {
  std::string text = "{\"x\":[";
  while (text.size() < kMaxConfigBytes - 10) text += "1,";
  text += "1]}";
  EXPECT_THAT(RefusalOfText(text), HasSubstr("is not a Hugging Face config"));
}

TEST(BadConfig, AMessageNeverRepeatsALongValue) {
  const std::string huge(100'000, 'x');
  EXPECT_LT(RefusalWith("hidden_size", huge).size(), 300u);
  EXPECT_LT(RefusalWith("architectures", json::array({huge})).size(), 500u);
  EXPECT_LT(RefusalWith("model_type", huge).size(), 300u);
  EXPECT_LT(RefusalWith("hidden_act", huge).size(), 400u);
  EXPECT_EQ(RefusalWith("hidden_size", "two\nlines").find("two\nlines"), std::string::npos);
}

// Whatever bytes come: a model whose parts sum up, or an InputError.
TEST(BadConfig, RandomEditsNeverDoAnythingElse) {
  constexpr int kTexts = 20'000;
  const unsigned seed = 20260301;
  std::mt19937 random(seed);
  const std::string originals[] = {Llama8B().dump(), Qwen06B().dump(), Gpt2Small().dump(),
                                   Gemma().dump(), NeoX().dump()};
  const std::string_view pieces[] = {"-", "0", "9",  "\"",   "{",    "[",       "}",   "]",
                                     ":", ",", "e9", "null", "true", "\\u0000", "\x80"};
  for (int i = 0; i < kTexts; ++i) {
    std::string text = originals[random() % std::size(originals)];
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      text.replace(at, random() % 3, pieces[random() % std::size(pieces)]);
    }
    try {
      const Architecture a = ParseHfConfig(text, "my.json");
      EXPECT_GT(CountParameters(a).total(), 0) << text;
      EXPECT_LE(CountParameters(a).total(), kMaxModelParameters) << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), StartsWith("my.json: ")) << "seed " << seed << ": " << text;
    }
  }
}

// A parser keeps the last of several in silence.
TEST(BadConfig, AFieldThatIsGivenTwiceIsRefusedWithItsLine) {
  EXPECT_THAT(RefusalOfText("{\"a\": 1,\n\"b\": {\"a\": 2},\n\"a\": 3}"),
              HasSubstr("line 3: \"a\" is given twice"));
  EXPECT_THAT(RefusalOfText("{\"a\": [{\"x\\\"\": 1,\n\"\\u0078\\\"\": 1}]}"),
              HasSubstr("line 2: \"x\\\"\" is given twice"));
  EXPECT_THAT(RefusalOfText("{\"a\": \"a\", \"b\": [{\"c\": 1}, {\"c\": 1}]}"),
              testing::Not(HasSubstr("twice")));
}

TEST(BadConfig, NoMessageHasTheLibrarysOwnCodes) {
  const std::string refusal = RefusalOfText("{\"hidden_size\": 1e400}");
  EXPECT_THAT(refusal, AllOf(HasSubstr("number overflow"), testing::Not(HasSubstr("exception"))));
}

}  // namespace
}  // namespace spiritlevel
