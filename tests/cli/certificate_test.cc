// What is said of schedules that nobody searched for: a bound that none of them is below, or why
// there is none.
#include "cli/certify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/play.h"
#include "scenarios/scenario.h"
#include "sim/schedules/catalog.h"
#include "sim/schedules/generators.h"

namespace spiritlevel {
namespace {

std::vector<ScheduleChoice> AllChoices() {
  std::vector<ScheduleChoice> choices;
  for (const ScheduleInfo& info : AllSchedules()) choices.push_back(NamedSchedule(info.name));
  return choices;
}

const Result& Find(const Comparison& comparison, std::string_view schedule) {
  return *std::find_if(comparison.results.begin(), comparison.results.end(),
                       [&](const Result& r) { return r.schedule == schedule; });
}

// A small scenario as text, so that a failure can be played by hand. Costs are small integers and
// often zero, so that ties abound.
class RandomScenario {
 public:
  explicit RandomScenario(unsigned seed) : random_(seed) {}

  std::string MakeText() {
    const int ranks = Number(1, 4);
    const int micro_batches = Number(1, 8);
    std::ostringstream out;
    out << "ranks: " << ranks << " micro_batches: " << micro_batches << '\n';
    // From hardly enough for one micro-batch to more than enough for all.
    if (Number(0, 2) > 0) out << "memory_limit_bytes: " << 12 + Number(0, 12) * 6 << '\n';
    out << "stages_per_rank: " << Number(2, 3) << " transfer_us: " << Number(0, 2)
        << " link_busy_us: " << Number(0, 2) << " launch_us: " << Number(0, 1) * Number(0, 1)
        << " optimizer_us: " << Number(0, 4) << " barrier_us: " << Number(0, 2)
        << " static_bytes: " << Number(0, 4) << '\n';
    if (Number(0, 4) == 0) out << "reduction_us: " << Number(1, 4) << " buckets: 2\n";
    out << (Number(0, 1) == 0 ? Uniform() : Table(ranks * Number(1, 2), micro_batches));
    return out.str();
  }

  PlayOptions MakeOptions() {
    PlayOptions options;
    options.posting = OneOf({Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched});
    if (options.posting == Posting::kNcclFifo) {
      options.receives = OneOf({Receives::kEarly, Receives::kDeferred});
      options.channels = OneOf({Channels::kPair, Channels::kDirected});
    }
    options.tail = OneOf(
        {Tail::kBarrier, Tail::kNoTail, Tail::kStrictValidation, Tail::kSpeculativeValidation});
    options.weight_grads = OneOf({WeightGrads::kByMicroBatch, WeightGrads::kByMicroBatch,
                                  WeightGrads::kByMicroBatch, WeightGrads::kByBucket});
    return options;
  }

 private:
  int Number(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  template <class T>
  T OneOf(std::initializer_list<T> choices) {
    return choices.begin()[Number(0, static_cast<int>(choices.size()) - 1)];
  }

  std::string Cost(bool has_fused) {
    const int input_grad = Number(0, 3);
    const int weight_grad = Number(0, 3);
    std::ostringstream out;
    out << "forward_us: " << Number(1, 3) << " input_grad_us: " << input_grad
        << " weight_grad_us: " << weight_grad << " activation_bytes: " << Number(0, 8)
        << " weight_state_bytes: " << Number(0, 4) << ' ';
    // Cheaper than both, or dearer.
    if (has_fused) out << "fused_backward_us: " << Number(0, input_grad + 3) << ' ';
    return out.str();
  }

  std::string Uniform() { return "costs { uniform { " + Cost(Number(0, 2) == 0) + "} }\n"; }

  std::string Table(int rows, int micro_batches) {
    const bool varies = Number(0, 1) == 0;
    std::ostringstream out;
    out << "costs { table {\n";
    for (int row = 0; row < rows; ++row) {
      const bool has_fused = Number(0, 2) == 0;
      out << "  row { " << Cost(has_fused);
      if (varies) {
        out << "micro_batch { index: " << Number(0, micro_batches - 1) << ' ' << Cost(has_fused)
            << "} ";
      }
      out << "}\n";
    }
    out << "} }\n";
    return out.str();
  }

  std::mt19937 random_;
};

// Certify() refuses a bound above a run, which would end here as an exception; that the fields say
// the same is checked besides.
TEST(Certificate, NoBoundIsAboveANamedScheduleWhateverTheCosts) {
  std::map<std::string, int> certified;
  int proved = 0;
  for (unsigned seed = 1; seed <= 1500; ++seed) {
    RandomScenario random(seed);
    const std::string text = random.MakeText();
    const PlayOptions options = random.MakeOptions();
    const std::string where = "seed " + std::to_string(seed) + ", posting " +
                              std::string(Name(options.posting)) + ", tail " +
                              std::string(Name(options.tail)) + "\n" + text;
    const Scenario scenario = ParseScenario(text, ScenarioFormat::kText, "random");
    Comparison comparison;
    ASSERT_NO_THROW(comparison = Compare(scenario, AllChoices(), options).comparison) << where;
    for (const Result& r : comparison.results) {
      ASSERT_NE(r.certificate.has_value(), !r.certificate_note.empty()) << r.schedule << where;
      if (!r.certificate) continue;
      ASSERT_TRUE(r.fits) << r.schedule << where;
      ASSERT_LE(r.certificate->lower_bound, r.summary->max_rank_span) << r.schedule << where;
      ASSERT_EQ(r.certificate->value, r.summary->max_rank_span) << r.schedule << where;
      ASSERT_EQ(r.certificate->proved_optimal, r.certificate->lower_bound == r.certificate->value);
      ++certified[r.placement];
      proved += r.certificate->proved_optimal ? 1 : 0;
    }
  }
  for (const char* placement : {"linear", "looped", "V"}) {
    EXPECT_GT(certified[placement], 500) << placement;
  }
  EXPECT_GT(proved, 200);
}

Scenario Gpt(const std::string& limit) {
  return ParseScenario("ranks: 8 micro_batches: 24 " + limit +
                           " costs { uniform { forward_us: 18522 input_grad_us: 18086 "
                           "weight_grad_us: 9337 transfer_us: 601 activation_bytes: 1000 "
                           "weight_state_bytes: 366 } }",
                       ScenarioFormat::kText, "gpt");
}

// At p activations ZB-H1 and ZB-1p are the best there is, at 2p ZB-2p: docs/bounds.md.
TEST(Certificate, ProvesThePublishedSchedulesAtTheirLimits) {
  const Comparison at_p = Compare(Gpt("memory_limit_bytes: 8000"), AllChoices(), {}).comparison;
  EXPECT_TRUE(Find(at_p, "zb-h1").certificate->proved_optimal);
  EXPECT_TRUE(Find(at_p, "zb-1p").certificate->proved_optimal);
  EXPECT_TRUE(Find(at_p, "zb-v-auto").certificate->proved_optimal);
  EXPECT_FALSE(Find(at_p, "1f1b").certificate->proved_optimal);
  const Comparison at_2p = Compare(Gpt("memory_limit_bytes: 16000"), AllChoices(), {}).comparison;
  EXPECT_TRUE(Find(at_2p, "zb-2p").certificate->proved_optimal);
  EXPECT_GT(Find(at_2p, "zb-h1").certificate->gap, 0.1);
}

TEST(Certificate, SaysWhyThereIsNone) {
  const Comparison c = Compare(Gpt("memory_limit_bytes: 8000"), AllChoices(), {}).comparison;
  EXPECT_EQ(Find(c, "gpipe").certificate_note, "it does not fit the memory limit");
  const Comparison free = Compare(Gpt(""), AllChoices(), {}).comparison;
  EXPECT_TRUE(Find(free, "gpipe").certificate.has_value());
  for (const char* name : {"dualpipe", "dualpipe-v"}) {
    EXPECT_FALSE(Find(free, name).certificate) << name;
    EXPECT_EQ(Find(free, name).certificate_note, "F&B pairs take less time than bounds count");
  }
  const Comparison odd =
      Compare(ParseScenario("ranks: 3 micro_batches: 4 costs { uniform { forward_us: 1 "
                            "input_grad_us: 1 weight_grad_us: 1 } }",
                            ScenarioFormat::kText, "odd"),
              AllChoices(), {})
          .comparison;
  EXPECT_EQ(Find(odd, "dualpipe").certificate_note, "it cannot run");
  const Comparison by_bucket = Compare(Gpt("reduction_us: 5"), {NamedSchedule("zb-h1")},
                                       {.weight_grads = WeightGrads::kByBucket})
                                   .comparison;
  EXPECT_EQ(by_bucket.results[0].certificate_note, "weight gradients are joined by bucket");
}

// An order that is read from a file is held against the bound of its placement; one whose stages
// lie otherwise, against none.
TEST(Certificate, IsOfTheOrderAndNotOfItsName) {
  const Scenario scenario = Gpt("memory_limit_bytes: 8000");
  Orders orders = ZbH1(8, 24);
  const auto play = [&](const Orders& o) {
    const ScheduleChoice mine{.name = "mine", .info = nullptr, .orders = o, .notes = {}};
    return Compare(scenario, {mine}, {}).comparison.results[0];
  };
  EXPECT_TRUE(play(orders).certificate->proved_optimal);
  std::swap(orders[2], orders[5]);  // stages 2 and 5 on each other's ranks
  const Result moved = play(orders);
  ASSERT_TRUE(moved.valid) << moved.reason;
  EXPECT_FALSE(moved.certificate);
  EXPECT_EQ(moved.certificate_note, "no bound is of this placement");
}

TEST(Certificate, BoundsAreWorkedOutOnceForEachPlacement) {
  const Scenario scenario = Gpt("");
  SpanCertifier certifier(scenario);
  for (const ScheduleChoice& choice : AllChoices()) Play(scenario, choice, {}, &certifier);
  EXPECT_EQ(certifier.num_bounds(), 3);  // linear, looped with 2, V
}

}  // namespace
}  // namespace spiritlevel
