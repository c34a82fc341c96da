// The gate as a CI system sees it: what it returns, and what it writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "calibrate/profile_file.h"
#include "report/gate.h"
#include "report/gate_text.h"
#include "tests/cli/made_up_profile.h"
#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kExample = "scenarios/example.textproto";
constexpr const char* kUneven = "scenarios/uneven-stages.textproto";

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

Outcome Gate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "gate");
  return RunSpiritlevel(arguments);
}

// A baseline of the example, and what to do to it before the gate reads it again.
class Changed {
 public:
  Changed() {
    const Outcome made = Gate({kExample, "--baseline", path(), "--update"});
    EXPECT_EQ(made.status, 0) << made.err;
    json_ = ordered_json::parse(Read(path()));
  }

  std::string path() const { return folder_.Path("baseline.json"); }
  const Folder& folder() const { return folder_; }
  ordered_json& json() { return json_; }
  ordered_json& result(const std::string& schedule) {
    for (ordered_json& r : json_["scenarios"][0]["results"]) {
      if (r["schedule"] == schedule) return r;
    }
    throw std::out_of_range(schedule);
  }

  Outcome Run(std::vector<std::string> more = {}) {
    folder_.Write("baseline.json", json_.dump(2));
    std::vector<std::string> arguments = {kExample, "--baseline", path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Gate(arguments);
  }

 private:
  Folder folder_;
  ordered_json json_;
};

TEST(Gate, PassesWhatItHasJustWrittenAndSaysSoInOneLine) {
  const Folder folder;
  const std::string baseline = folder.Path("b.json");
  ASSERT_EQ(Gate({kExample, kUneven, "--baseline", baseline, "--update"}).status, 0);
  const Outcome again = Gate({kExample, kUneven, "--baseline", baseline, "--markdown", "-"});
  EXPECT_EQ(again.status, 0) << again.out << again.err;
  EXPECT_EQ(again.out,
            "**Spiritlevel gate passed**: nothing changed on 14 schedules on 2 scenarios.\n");
  EXPECT_EQ(folder.Names(), std::vector<std::string>{"b.json"});
}

TEST(Gate, WritesTheSameBaselineAgain) {
  const Changed first;
  const Changed second;
  EXPECT_EQ(Read(first.path()), Read(second.path()));
}

// The example's known numbers (arXiv 2401.10241, 1.5B, m = 24), as a baseline has them.
TEST(Gate, KeepsTheMetricsOfCompare) {
  Changed changed;
  const ordered_json& r = changed.result("1f1b");
  EXPECT_TRUE(r["valid"]);
  EXPECT_TRUE(r["fits"]);
  EXPECT_EQ(r["makespan_ns"], 1'456'749'000);
  EXPECT_EQ(r["step_ns"], 1'456'749'000);
  EXPECT_NEAR(r["bubble_rate"], 0.2431, 5e-5);
  EXPECT_EQ(r["peak_bytes"], 8000);
  EXPECT_GT(r["certificate_gap"], 0.2);
  EXPECT_EQ(changed.result("zb-2p")["certificate_gap"], 0.0);
  // Two copies of the model are no placement that a bound is of; what does not fit has none.
  EXPECT_TRUE(changed.result("dualpipe")["certificate_gap"].is_null());
  EXPECT_TRUE(changed.result("dualpipe-v")["certificate_gap"].is_null());
  EXPECT_FALSE(changed.result("gpipe")["fits"]);
  EXPECT_TRUE(changed.result("gpipe")["certificate_gap"].is_null());
}

TEST(Gate, ExitsWithOneWhereAnyMetricIsWorseByTheLeastBit) {
  for (const char* metric : {"makespan_ns", "step_ns", "peak_bytes", "exposed_communication_ns"}) {
    Changed changed;
    ordered_json& value = changed.result("zb-h1")[metric];
    value = value.get<int64_t>() - 1;
    const Outcome outcome = changed.Run();
    EXPECT_EQ(outcome.status, 1) << metric << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("worse"), HasSubstr("zb-h1"), HasSubstr("FAILED")));
  }
  for (const char* metric : {"bubble_rate", "certificate_gap"}) {
    Changed changed;
    ordered_json& value = changed.result("zb-h1")[metric];
    value = value.get<double>() - 1e-7;
    EXPECT_EQ(changed.Run().status, 1) << metric;
  }
}

TEST(Gate, LetsPassWhatIsWithinTheToleranceOfItsMetricAndNothingElse) {
  Changed changed;
  ordered_json& step = changed.result("zb-h1")["step_ns"];
  step = step.get<int64_t>() * 100 / 101;  // now 1 % worse
  EXPECT_EQ(changed.Run().status, 1);
  EXPECT_EQ(changed.Run({"--tolerance", "step_ns=0.9"}).status, 1);
  EXPECT_EQ(changed.Run({"--tolerance", "makespan_ns=5"}).status, 1);
  const Outcome passes = changed.Run({"--tolerance", "step_ns=1.1"});
  EXPECT_EQ(passes.status, 0) << passes.out;
  EXPECT_THAT(passes.out, HasSubstr("1 worse within tolerance"));
}

TEST(Gate, TakesTolerancesOfRatesAsPercentagePoints) {
  Changed changed;
  ordered_json& rate = changed.result("zb-h1")["bubble_rate"];
  rate = rate.get<double>() - 0.01;
  EXPECT_EQ(changed.Run({"--tolerance", "bubble_rate=0.9"}).status, 1);
  EXPECT_EQ(changed.Run({"--tolerance", "bubble_rate=1.1"}).status, 0);
}

TEST(Gate, WatchesTheMetricsItIsTold) {
  Changed changed;
  ordered_json& makespan = changed.result("zb-h1")["makespan_ns"];
  makespan = makespan.get<int64_t>() - 1;
  EXPECT_EQ(changed.Run().status, 1);
  const Outcome bubble = changed.Run({"--metric", "bubble_rate"});
  EXPECT_EQ(bubble.status, 0) << bubble.out << bubble.err;
  EXPECT_THAT(bubble.out, AllOf(HasSubstr("14 as before; only bubble rate is watched"),
                                Not(HasSubstr("makespan"))));
  EXPECT_EQ(changed.Run({"--metric", "bubble_rate", "--metric", "makespan_ns"}).status, 1);

  Changed more_bubble;
  ordered_json& rate = more_bubble.result("zb-h1")["bubble_rate"];
  rate = rate.get<double>() - 0.01;
  EXPECT_EQ(more_bubble.Run({"--metric", "bubble_rate"}).status, 1);
  EXPECT_EQ(more_bubble.Run({"--metric", "bubble_rate", "--tolerance", "bubble_rate=1.1"}).status,
            0);
  EXPECT_EQ(more_bubble.Run({"--metric", "step_ns"}).status, 0);
}

TEST(Gate, FailsWhatDoesNotFitAnyMoreWhateverIsWatched) {
  Changed changed;
  changed.result("gpipe")["fits"] = true;
  EXPECT_EQ(changed.Run({"--metric", "bubble_rate"}).status, 1);
}

TEST(Gate, RefusesMetricsThatAreNoneOrTwiceAndTolerancesThatDoNothing) {
  Changed good;
  const struct {
    std::vector<std::string> flags;
    const char* says;
  } cases[] = {
      {{"--metric", "speed"}, "--metric: there is no \"speed\""},
      {{"--metric", "step_ns", "--metric", "step_ns"}, "--metric: step_ns is given twice"},
      {{"--metric", "step_ns", "--tolerance", "bubble_rate=1"}, "bubble_rate is not watched"},
      {{"--tolerance", "step_ns=1", "--tolerance", "step_ns=5"}, "step_ns is given twice"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = good.Run(c.flags);
    EXPECT_EQ(outcome.status, 2) << c.says << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(c.says));
  }
}

// One value a flag: a scenario may follow any of those that can be given several times.
TEST(Gate, AScenarioMayStandBehindAnyFlag) {
  const Folder folder;
  const std::string csv = folder.Write("mine.csv", [] {
    std::string rows;
    for (int rank = 0; rank < 8; ++rank) {
      for (int i = 0; i < 24; ++i) {
        rows += std::to_string(rank) + "F" + std::to_string(i) + (i == 23 ? "" : ",");
      }
      for (int i = 0; i < 24; ++i) rows += "," + std::to_string(rank) + "B" + std::to_string(i);
      rows += '\n';
    }
    return rows;
  }());
  const std::string baseline = folder.Path("b.json");
  const std::vector<std::vector<std::string>> flags = {{"--schedule", "1f1b"},
                                                       {"--schedule-file", csv},
                                                       {"--tolerance", "step_ns=1"},
                                                       {"--metric", "step_ns"}};
  for (const std::vector<std::string>& flag : flags) {
    for (const bool update : {true, false}) {
      std::vector<std::string> arguments = {"--baseline", baseline};
      if (update) arguments.push_back("--update");
      arguments.insert(arguments.end(), flag.begin(), flag.end());
      arguments.push_back(kExample);
      const Outcome outcome = Gate(arguments);
      EXPECT_EQ(outcome.status, 0) << flag[0] << outcome.err;
    }
  }
}

TEST(Gate, SaysWhatWasWrittenBeforeAnOutputFailed) {
  Changed good;
  const std::string markdown = good.folder().Path("m.md");
  const std::string before = Read(good.path());
  good.result("zb-h1")["makespan_ns"] = 2'000'000'000;
  const Outcome outcome = good.Run({"--markdown", markdown, "--junit", "/dev/full", "--update"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("/dev/full"), HasSubstr("written before: "), HasSubstr("m.md")));
  EXPECT_THAT(Read(good.path()), HasSubstr("2000000000"));  // the baseline stays as it was
}

TEST(Gate, SaysThatABetterRunIsWorthANewBaseline) {
  Changed changed;
  changed.result("zb-h1")["makespan_ns"] = 2'000'000'000;
  const Outcome outcome = changed.Run();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("better"), HasSubstr("--update")));
}

TEST(Gate, FailsWhatDoesNotFitAnyMoreOrIsNotPlayedAnyMore) {
  Changed changed;
  changed.result("gpipe")["fits"] = true;
  EXPECT_THAT(changed.Run().out, HasSubstr("does not fit any more: "));
  EXPECT_EQ(changed.Run().status, 1);

  Changed gone;
  ordered_json ghost = gone.result("1f1b");
  ghost["schedule"] = "ghost";
  gone.json()["scenarios"][0]["results"].push_back(ghost);
  const Outcome outcome = gone.Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("ghost"), HasSubstr("was not played")));
}

TEST(Gate, FailsAScheduleThatDoesNotRunAnyMore) {
  const Folder folder;
  const std::string csv = folder.Write("mine.csv", "0F0,0B0\n1F0,1B0\n");
  const std::string scenario = folder.Write(
      "two.textproto",
      "name: \"two\" ranks: 2 micro_batches: 1 costs { uniform { forward_us: 1 input_grad_us: 1 "
      "weight_grad_us: 1 activation_bytes: 1 weight_state_bytes: 1 } }");
  const std::vector<std::string> arguments = {scenario, "--baseline", folder.Path("b.json"),
                                              "--schedule-file", csv};
  std::vector<std::string> update = arguments;
  update.push_back("--update");
  ASSERT_EQ(Gate(update).status, 0);
  ASSERT_EQ(Gate(arguments).status, 0);
  folder.Write("mine.csv", "0B0,0F0\n1F0,1B0\n");
  const Outcome outcome = Gate(arguments);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("does not run any more: "));
}

TEST(Gate, AnUnplayedScenarioOfTheBaselineFails) {
  const Folder folder;
  const std::string baseline = folder.Path("b.json");
  ASSERT_EQ(Gate({kExample, kUneven, "--baseline", baseline, "--update"}).status, 0);
  EXPECT_EQ(Gate({kExample, "--baseline", baseline}).status, 1);
}

// Never a pass, whatever is wrong with it; and never anything written.
TEST(Gate, ABaselineThatCannotBeUnderstoodIsAnError) {
  const Changed good;
  const std::string text = Read(good.path());
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"", "is not JSON"},
      {text.substr(0, text.size() / 2), "is not JSON"},
      {"<<<<<<< ours\n" + text, "is not JSON"},
      {"{}", "is no baseline"},
      {"[1, 2]", "is no baseline"},
      {Replaced(text, "\"version\": 1", "\"version\": 2"), "is of version 2"},
      {Replaced(text, "\"version\": 1", "\"version\": \"1\""), "is of version"},
      {Replaced(text, "\"makespan_ns\": 1", "\"makespan_ns\": -1"), "out of range"},
      {Replaced(text, "\"makespan_ns\": 1", "\"makespan_ns\": 0.1"), "no whole number"},
      {Replaced(text, "\"makespan_ns\": 1", "\"makespan_ns\": 9999999999"), "out of range"},
      {Replaced(text, "\"makespan_ns\"", "\"makespan\""), "is missing"},
      {Replaced(text, "\"bubble_rate\": 0", "\"bubble_rate\": -10"), "is no rate"},
      {Replaced(text, "\"schedule\": \"1f1b\"", "\"schedule\": \"gpipe\""), "stands twice"},
      {Replaced(text, "\"valid\": true", "\"valid\": 1"), "is not true or false"},
      {Replaced(text, "\"makespan_ns\": ", "\"makespan_ns\": 1, \"makespan_ns\": "),
       "\"makespan_ns\" stands twice"},
      {Replaced(text, "\"scenarios\": [", "\"scenarios\": [], \"scenarios\": ["),
       "\"scenarios\" stands twice"},
      {Replaced(text, "\"--tail\": ", "\"--tail\": \"none\", \"--tail\": "),
       "\"--tail\" stands twice"},
      {Replaced(text, "\"settings\": {", "\"settings\": {\"--moon\": \"full\","), "--moon full"},
      {Replaced(text, "\"profile\": null", "\"profile\": \"0123\""), "another profile"},
      {Replaced(text, "\"profile\": null", "\"profile\": 0"), "is no digest"},
      {Replaced(text, "\"profile\": null", "\"profiles\": null"), "is missing"},
      {Replaced(text, "\"ranks\": 8", "\"ranks\": 4"), "4 ranks and 24 micro-batches there"},
      {Replaced(text, "\"ranks\": 8", "\"ranks\": 0"), "cannot be"},
      {Replaced(text, "gpt-1.5b, 8", "gpt-1.6b, 8"), "has no scenario"},
      {Replaced(text, "\"--tail\": \"barrier\"", "\"--tail\": \"none\""), "made with --tail none"},
  };
  for (const auto& c : cases) {
    const Folder folder;
    const std::string path = folder.Write("b.json", c.text);
    const Outcome outcome = Gate({kExample, "--baseline", path, "--junit", folder.Path("j.xml"),
                                  "--markdown", folder.Path("m.md")});
    EXPECT_EQ(outcome.status, 2) << c.says << outcome.out;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("b.json: "), HasSubstr(c.says)));
    EXPECT_EQ(folder.Names(), std::vector<std::string>{"b.json"});
  }
}

TEST(Gate, AMissingBaselineOrScheduleOfItIsAnError) {
  const Folder folder;
  const Outcome missing = Gate({kExample, "--baseline", folder.Path("none.json")});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("there is no such baseline"), HasSubstr("--update")));

  const std::string baseline = folder.Path("b.json");
  ASSERT_EQ(Gate({kExample, "--baseline", baseline, "--schedule", "1f1b", "--update"}).status, 0);
  const Outcome unknown =
      Gate({kExample, "--baseline", baseline, "--schedule", "1f1b", "--schedule", "zb-h1"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("has no schedule zb-h1"));
  // Not asked for by name, it is only new.
  const Outcome all = Gate({kExample, "--baseline", baseline});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("13 new"));
}

TEST(Gate, UpdateDoesNotWriteOverWhatIsNoBaseline) {
  const Folder folder;
  const std::string other = folder.Write("other.json", "{\"precious\": true}");
  EXPECT_EQ(Gate({kExample, "--baseline", other, "--update"}).status, 2);
  EXPECT_EQ(Read(other), "{\"precious\": true}");
  const std::string scenario = folder.Write("s.textproto", Read(kExample));
  EXPECT_EQ(Gate({scenario, "--baseline", scenario, "--update"}).status, 2);
  EXPECT_EQ(Read(scenario), Read(kExample));
}

TEST(Gate, RefusesBadTolerancesAndNamesThatMeanTwoThings) {
  const Changed good;
  for (const char* bad : {"step", "step_ns", "step_ns=", "step_ns=-1", "step_ns=nan", "step_ns=1x",
                          "speed=1", "=1", "step_ns=1e9"}) {
    const Outcome outcome = Gate({kExample, "--baseline", good.path(), "--tolerance", bad});
    EXPECT_EQ(outcome.status, 2) << bad;
    EXPECT_THAT(outcome.err, HasSubstr("--tolerance: ")) << bad;
  }
  EXPECT_EQ(Gate({kExample, kExample, "--baseline", good.path()}).status, 2);
  EXPECT_EQ(Gate({kExample, "--baseline", good.path(), "--schedule", "1f1b", "--schedule", "1f1b"})
                .status,
            2);
}

TEST(Gate, JUnitHasOneCaseForEachScheduleAndAFailureForEachThatIsWorse) {
  Changed changed;
  changed.result("zb-h1")["makespan_ns"] = 1;
  const std::string path = changed.folder().Path("j.xml");
  EXPECT_EQ(changed.Run({"--junit", path}).status, 1);
  const std::string xml = Read(path);
  EXPECT_THAT(xml,
              AllOf(HasSubstr("tests=\"14\" failures=\"1\""), HasSubstr("name=\"zb-h1\"><failure "),
                    HasSubstr("makespan"), HasSubstr("name=\"1f1b\"></testcase>")));
}

TEST(Gate, JsonSaysWhatChanged) {
  Changed changed;
  changed.result("zb-h1")["makespan_ns"] = 1'300'000'000;
  const std::string path = changed.folder().Path("r.json");
  EXPECT_EQ(changed.Run({"--json", path}).status, 1);
  const ordered_json all = ordered_json::parse(Read(path));
  EXPECT_FALSE(all["passes"]);
  for (const ordered_json& r : all["results"]) {
    if (r["schedule"] != "zb-h1") {
      EXPECT_EQ(r["state"], "same");
      continue;
    }
    EXPECT_EQ(r["state"], "worse");
    EXPECT_EQ(r["changes"][0]["metric"], "makespan_ns");
    EXPECT_EQ(r["changes"][0]["baseline"], 1'300'000'000);
  }
}

// A machine measured anew has other times, whatever became of the schedules.
TEST(Gate, ABaselineOfAnotherProfileIsAnError) {
  constexpr const char* kModel = "scenarios/tinyllama-p4-m16.textproto";
  const Folder folder;
  Calibration machine = MadeUpCalibration();
  const std::string profile = folder.Path("machine.textproto");
  folder.Write("machine.textproto", ProfileText(machine, ProfileFormat::kText));
  const std::vector<std::string> play = {
      kModel, "--profile", profile, "--schedule", "1f1b", "--baseline", folder.Path("b.json")};
  std::vector<std::string> update = play;
  update.push_back("--update");
  const Outcome made = Gate(update);
  ASSERT_EQ(made.status, 0) << made.err;
  ASSERT_EQ(Gate(play).status, 0);

  // The same numbers are the same profile, whatever else its file says.
  machine.date = "2011-12-13";
  machine.profile.name = "the same machine";
  folder.Write("machine.textproto", ProfileText(machine, ProfileFormat::kText));
  EXPECT_EQ(Gate(play).status, 0);

  machine.profile.transfer_latency_ns += 1;
  folder.Write("machine.textproto", ProfileText(machine, ProfileFormat::kText));
  const Outcome other = Gate(play);
  EXPECT_EQ(other.status, 2) << other.out;
  EXPECT_THAT(other.err, HasSubstr("was made with another profile"));
  EXPECT_EQ(Gate(update).status, 0);
  EXPECT_EQ(Gate(play).status, 0);
}

// Below without the program: what the text does with names and order.

GateRecord RecordOf(const std::string& scenario, std::vector<GateEntry> entries) {
  return {.settings = {},
          .scenarios = {
              {.name = scenario, .ranks = 2, .micro_batches = 4, .entries = std::move(entries)}}};
}

GateEntry EntryWith(const std::string& name, int64_t makespan) {
  GateEntry entry{.schedule = name, .valid = true, .fits = true};
  entry.figures.fill(0);
  entry.figure(GateMetric::kMakespan) = makespan;
  return entry;
}

TEST(GateText, TheWorstComesFirst) {
  const GateVerdict verdict = JudgeGate(
      RecordOf("s", {EntryWith("a", 1000), EntryWith("b", 1000), EntryWith("c", 1000)}),
      RecordOf("s", {EntryWith("a", 1010), EntryWith("b", 900), EntryWith("c", 1500)}), {});
  const std::string text = GateMarkdown(verdict);
  const size_t a = text.find("| a |");
  const size_t b = text.find("| b |");
  const size_t c = text.find("| c |");
  EXPECT_LT(c, a);
  EXPECT_LT(a, b);
  EXPECT_THAT(text, HasSubstr("+50.00 % (+500 ns)"));
}

TEST(GateText, SaysUnknownForWhatIsNotKnownAnyMore) {
  GateEntry known = EntryWith("a", 1);
  GateEntry unknown = known;
  known.figure(GateMetric::kCertificateGap) = GateRate(0.1622);
  unknown.figure(GateMetric::kCertificateGap) = {};
  const std::string text =
      GateText(JudgeGate(RecordOf("s", {known}), RecordOf("s", {unknown}), {}));
  EXPECT_THAT(text, HasSubstr("certificate gap: 16.22 % -> unknown\n"));
}

TEST(GateText, CountsSchedulesAndScenarios) {
  const GateEntry a = EntryWith("a", 1);
  const GateEntry b = EntryWith("b", 1);
  const auto says = [](const GateRecord& record) {
    return GateText(JudgeGate(record, record, {}));
  };
  GateRecord record = RecordOf("s", {a});
  EXPECT_THAT(says(record), HasSubstr("passed: 1 schedule: 1 as before"));
  record.scenarios.push_back({.name = "t", .ranks = 2, .micro_batches = 4, .entries = {a}});
  EXPECT_THAT(says(record), HasSubstr("passed: 1 schedule on 2 scenarios: 2 as before"));
  record.scenarios[1].entries.push_back(b);
  EXPECT_THAT(says(record), HasSubstr("passed: 3 results on 2 scenarios: 3 as before"));
}

TEST(GateText, NamesOfTheUserCannotBecomeMarkup) {
  const std::string name = "x|y<b>`*_[l](u)\n# @you";
  const GateVerdict verdict = JudgeGate(RecordOf(name, {EntryWith("a\"&'", 1)}),
                                        RecordOf(name, {EntryWith("a\"&'", 2)}), {});
  const std::string markdown = GateMarkdown(verdict);
  EXPECT_THAT(markdown, AllOf(Not(HasSubstr("<b>")), Not(HasSubstr("x|y")), Not(HasSubstr("@you")),
                              Not(HasSubstr("[l]")), Not(HasSubstr("`"))));
  EXPECT_THAT(GateJUnit(verdict), AllOf(Not(HasSubstr("<b>")), HasSubstr("a&quot;&amp;&#39;")));
}

TEST(GateRecord, IsReadBackAsItWasWritten) {
  GateRecord record = RecordOf("s \"ü\"", {EntryWith("a", int64_t{1} << 60), EntryWith("b", 0)});
  record.settings["--tail"] = "barrier";
  record.scenarios[0].profile = "0123456789abcdef";
  for (const int64_t billionths : {0, 1, 333333333, 999999999, 123456789}) {
    record.scenarios[0].entries[0].figure(GateMetric::kBubbleRate) = billionths;
    record.scenarios[0].entries[0].figure(GateMetric::kCertificateGap) = {};
    EXPECT_EQ(ReadGateRecord(ToJson(record), "r"), record);
  }
}

}  // namespace
}  // namespace spiritlevel
