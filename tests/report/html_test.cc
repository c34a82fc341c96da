#include "report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "report/html_text.h"
#include "report/json.h"
#include "sim/event.h"
#include "tests/report/page_for_test.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ScenarioForTest UnevenScenario() {
  ScenarioForTest scenario{.ranks = 4,
                           .micro_batches = 8,
                           .common = {.hop = {.latency = 700, .busy = 300, .bytes = 1 << 20},
                                      .launch = 11,
                                      .optimizer = 5000,
                                      .barrier = 900,
                                      .static_bytes = Bytes{3} << 30},
                           .memory_limit = Bytes{9} << 30};
  for (TimeNs row = 0; row < 4; ++row) {
    scenario.rows.push_back({.forward = 9000 + 500 * row,
                             .input_grad = 8000 + 700 * row,
                             .weight_grad = 7000 - 600 * row,
                             .activation = Bytes{1} << 30,
                             .weight_state = Bytes{600} << 20});
  }
  return scenario;
}

std::string Between(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t from = text.find(begin);
  if (from == std::string_view::npos) return "";
  text.remove_prefix(from + begin.size());
  return std::string(text.substr(0, text.find(end)));
}

json DataOf(const std::string& page) {
  return json::parse(Between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
}

std::string Render(const PageForTest& page) {
  return HtmlReport({.comparison = page.comparison, .runs = page.runs});
}

std::string BytesOfBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  return bytes;
}

// Reads a packed run as the list at the head of html_pack.cc says; written from that list alone.
class Unpacker {
 public:
  struct NodeRead {
    uint64_t kind = 0;
    std::vector<Op> ops{};
    TimeNs start = 0;
    TimeNs end = 0;
    MemoryByCategory during{};
    MemoryByCategory after{};
    TimeNs launch = 0;
    TimeNs transfer = 0;
    int64_t cause_rank = -1;
    int64_t cause_node = 0;
  };

  explicit Unpacker(std::string bytes) : bytes_(std::move(bytes)) {
    const uint64_t ranks = Number();
    EXPECT_EQ(Number(), static_cast<uint64_t>(kNumMemoryCategories));
    shapes_.resize(Number());
    for (auto& shape : shapes_) {
      for (int i = 0; i < 7; ++i) shape.push_back(Number());
    }
    changes_.resize(Number());
    for (auto& change : changes_) {
      for (MemoryByCategory& part : change) part = Memory();
    }
    for (uint64_t r = 0; r < ranks; ++r) ReadRank(ranks);
  }

  bool at_end() const { return at_ == bytes_.size(); }
  const std::vector<std::vector<NodeRead>>& ranks() const { return ranks_; }
  const std::vector<uint64_t>& nodes_per_iteration() const { return nodes_per_iteration_; }

 private:
  uint64_t Number() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.at(at_++));
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  int64_t Signed() {
    const uint64_t value = Number();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  MemoryByCategory Memory() {
    MemoryByCategory memory{};
    for (Bytes& bytes : memory) bytes = Signed();
    return memory;
  }

  Op MakeOp(uint64_t pass, uint64_t stage, int64_t micro_batch) const {
    return {.micro_batch = static_cast<int32_t>(micro_batch),
            .stage = static_cast<uint16_t>(stage),
            .pass = static_cast<Pass>(pass - 1)};
  }

  void ReadRank(uint64_t ranks) {
    struct Last {
      int64_t first = 0;
      int64_t second = 0;
      TimeNs duration = 0;
    };
    std::vector<Last> last(shapes_.size());
    std::vector<int64_t> last_cause(ranks, 0);
    std::vector<NodeRead>& nodes = ranks_.emplace_back();
    MemoryByCategory live = Memory();
    nodes_per_iteration_.push_back(Number());
    TimeNs free = 0;
    for (uint64_t left = Number(); left > 0; --left) {
      NodeRead& node = nodes.emplace_back();
      const uint64_t shape_number = Number();
      const std::vector<uint64_t>& shape = shapes_.at(shape_number);
      Last& of = last[shape_number];
      node.kind = shape[0];
      if (node.kind <= 1) node.ops.push_back(MakeOp(shape[1], shape[3], of.first += Signed()));
      if (node.kind == 1) node.ops.push_back(MakeOp(shape[2], shape[5], of.second += Signed()));
      const TimeNs gap = Signed();
      of.duration += Signed();
      node.start = free + gap;
      node.end = free = node.start + of.duration;
      const auto& change = changes_.at(Number());
      for (size_t i = 0; i < live.size(); ++i) {
        node.during[i] = live[i] + change[0][i];
        node.after[i] = live[i] = node.during[i] + change[1][i];
      }
      if (gap == 0) continue;
      node.launch = static_cast<TimeNs>(Number());
      node.transfer = static_cast<TimeNs>(Number());
      node.cause_rank = static_cast<int64_t>(Number()) - 1;
      if (node.cause_rank < 0) continue;
      node.cause_node = last_cause[static_cast<size_t>(node.cause_rank)] += Signed();
    }
  }

  std::string bytes_;
  size_t at_ = 0;
  std::vector<std::vector<uint64_t>> shapes_;
  std::vector<std::array<MemoryByCategory, 2>> changes_;
  std::vector<std::vector<NodeRead>> ranks_;
  std::vector<uint64_t> nodes_per_iteration_;
};

bool IsComputeNode(const Event& event) {
  return event.kind != NodeKind::kSend && event.kind != NodeKind::kReceive;
}

// Every schedule, two iterations, against the events, which are read by other code.
TEST(PackRun, KeepsEveryTimeOpAndByteOfTheRun) {
  const ScenarioForTest scenario = UnevenScenario();
  for (const ScheduleInfo& info : AllSchedules()) {
    SCOPED_TRACE(info.name);
    if (!ResultOf(scenario, info.name).summary) continue;
    const Played played = Play(scenario, info.name);
    const Unpacker unpacked(PackRun(played.program, played.timeline, 2).packed);
    EXPECT_TRUE(unpacked.at_end());
    std::vector<size_t> next(unpacked.ranks().size(), 0);
    for (const Event& event : CollectEvents(played.program, played.timeline, 2)) {
      if (!IsComputeNode(event)) continue;
      const auto rank = static_cast<size_t>(event.rank);
      const Unpacker::NodeRead& node = unpacked.ranks()[rank].at(next[rank]++);
      ASSERT_EQ(node.start, event.start);
      ASSERT_EQ(node.end, event.end);
      ASSERT_EQ(node.during, event.during);
      ASSERT_EQ(node.after, event.after);
      ASSERT_EQ(node.launch, event.start - event.issue);
      ASSERT_EQ(node.ops.size(), event.kind == NodeKind::kPair ? 2u
                                 : event.kind == NodeKind::kOp ? 1u
                                                               : 0u);
      const std::vector<Op> ops = {event.op, event.second};
      for (size_t i = 0; i < node.ops.size(); ++i) {
        ASSERT_EQ(ToString(node.ops[i]), ToString(ops[i]));
      }
    }
    for (size_t rank = 0; rank < next.size(); ++rank) {
      EXPECT_EQ(next[rank], unpacked.ranks()[rank].size());
      EXPECT_EQ(next[rank], 2 * unpacked.nodes_per_iteration()[rank]);
    }
  }
}

// By category the waits of the first iteration's ops are the stalls of the report: what the page
// shows for an op is a piece of what its bars show for a rank.
TEST(PackRun, WaitsOfOpsSumToTheStallsOfTheirRank) {
  const ScenarioForTest scenario = UnevenScenario();
  for (const std::string name : {"1f1b", "zb-h1", "zb-v"}) {
    const Played played = Play(scenario, name);
    const StallReport stalls = ResultOf(scenario, name).summary->stalls;
    const Unpacker unpacked(PackRun(played.program, played.timeline, 1).packed);
    for (size_t rank = 0; rank < unpacked.ranks().size(); ++rank) {
      TimeNs launch = 0, transfer = 0;
      for (const Unpacker::NodeRead& node : unpacked.ranks()[rank]) {
        launch += node.launch;
        transfer += node.transfer;
      }
      EXPECT_EQ(launch, stalls.stalls[rank][static_cast<size_t>(StallCategory::kLaunch)]) << name;
      EXPECT_EQ(transfer, stalls.stalls[rank][static_cast<size_t>(StallCategory::kTransfer)])
          << name;
    }
  }
}

// The op that a wait is put down to makes what the waiting op reads, and ends before it begins.
TEST(PackRun, TheCauseOfAWaitIsTheProducerOfTheInput) {
  const Played played = Play(UnevenScenario(), "zb-v");
  const Unpacker unpacked(PackRun(played.program, played.timeline, 1).packed);
  int causes = 0;
  for (const auto& rank : unpacked.ranks()) {
    for (const Unpacker::NodeRead& node : rank) {
      if (node.cause_rank < 0) continue;
      ++causes;
      const Unpacker::NodeRead& cause = unpacked.ranks()
                                            .at(static_cast<size_t>(node.cause_rank))
                                            .at(static_cast<size_t>(node.cause_node));
      const bool forward = node.ops[0].pass == Pass::kF;
      EXPECT_EQ(cause.ops[0].stage, node.ops[0].stage + (forward ? -1 : 1));
      EXPECT_EQ(cause.ops[0].micro_batch, node.ops[0].micro_batch);
      EXPECT_LE(cause.end, node.start);
    }
  }
  EXPECT_GT(causes, 10);
}

// 16 ranks, 256 micro-batches, all schedules: about 150'000 ops.
TEST(HtmlReport, IsAFewMegabytesForTheLargestComparisonItIsMeantFor) {
  ScenarioForTest scenario = UnevenScenario();
  scenario.rows.clear();
  scenario.cost = {.forward = 11'307'000, .input_grad = 11'254'000, .weight_grad = 8'101'000};
  scenario.ranks = 16;
  scenario.micro_batches = 256;
  const PageForTest page = MakePage(scenario);
  int64_t ops = 0;
  for (const HtmlRun& run : page.runs) ops += run.ops;
  EXPECT_GT(ops, 150'000);
  EXPECT_LT(Render(page).size(), 4'000'000u);
}

TEST(HtmlReport, CarriesTheNumbersOfTheJson) {
  const PageForTest page = MakePage(UnevenScenario());
  const json data = DataOf(Render(page));
  const json expected = json::parse(ToJson(page.comparison));
  ASSERT_EQ(data["runs"].size(), expected["results"].size());
  for (size_t i = 0; i < data["runs"].size(); ++i) {
    const json& run = data["runs"][i];
    const json& result = expected["results"][i];
    EXPECT_EQ(run["schedule"], result["schedule"]);
    if (result["step_ns"].is_null()) {
      EXPECT_FALSE(run.contains("step_ns"));
      continue;
    }
    for (const char* key : {"step_ns", "makespan_ns", "bubble_rate", "bubble_fraction",
                            "peak_bytes", "busy_ns", "valid", "fits"}) {
      EXPECT_EQ(run[key], result[key]) << key;
    }
    TimeNs sum = 0;
    for (const json& part : run["waterfall_ns"]) sum += part.get<TimeNs>();
    EXPECT_EQ(sum, result["step_ns"].get<TimeNs>());
  }
}

TEST(HtmlReport, HoldsThePackedRunsAsTheyAre) {
  const PageForTest page = MakePage(UnevenScenario(), {"1f1b", "zb-v"});
  const json data = DataOf(Render(page));
  for (size_t i = 0; i < page.runs.size(); ++i) {
    EXPECT_EQ(BytesOfBase64(data["runs"][i]["packed"].get<std::string>()), page.runs[i].packed);
  }
}

// Every start tag has its end tag, in order; what is between is not looked into for <script> and
// <style>, as a browser does not either.
std::vector<std::string> MisplacedTags(std::string_view html) {
  const std::vector<std::string> kVoid = {"meta", "link", "br", "input"};
  std::vector<std::string> open, wrong;
  for (size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    std::string tag(html.substr(at + 1, end - at - 1));
    at = end;
    if (tag.starts_with("!")) continue;
    const bool closes = tag[0] == '/' || tag.ends_with("/");
    const std::string name =
        tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
    if (tag.ends_with("/") || testing::Value(kVoid, testing::Contains(name))) continue;
    if (!closes) {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name, at);
    } else if (open.empty() || open.back() != name) {
      wrong.push_back(tag);
    } else {
      open.pop_back();
    }
  }
  wrong.insert(wrong.end(), open.begin(), open.end());
  return wrong;
}

PageForTest HostilePage() {
  PageForTest page = MakePage(UnevenScenario(), {"1f1b", "zb-h1", "zb-v"});
  const std::string hostile =
      "</script></title><script>alert(1)</script><!-- <b a='\"'> & \xff\x01";
  page.comparison.scenario = hostile;
  page.comparison.warnings = {hostile};
  page.comparison.results[1].schedule = hostile;
  page.comparison.results[1].reason = hostile;
  page.comparison.results[2].summary.reset();
  page.comparison.results[2].reason = hostile;
  page.runs[2] = {};
  return page;
}

TEST(HtmlReport, NothingThatAUserWritesBecomesMarkup) {
  const PageForTest page = HostilePage();
  const std::string html =
      HtmlReport({.comparison = page.comparison,
                  .runs = page.runs,
                  .scenario_file = page.comparison.scenario,
                  .scenario_text = page.comparison.scenario,
                  .provenance = {{page.comparison.scenario, page.comparison.scenario}}});
  EXPECT_THAT(MisplacedTags(html), IsEmpty());
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<b a=")));
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;&lt;/title&gt;&lt;script&gt;alert(1)"));
  // Two scripts: the data and the page's own.
  size_t scripts = 0;
  for (size_t at = html.find("<script"); at != std::string::npos;
       at = html.find("<script", at + 1)) {
    ++scripts;
  }
  EXPECT_EQ(scripts, 2u);
  EXPECT_EQ(DataOf(html)["runs"][1]["schedule"].get<std::string>().substr(0, 9), "</script>");
}

TEST(HtmlReport, LoadsNothingAndRunsNothingElse) {
  const std::string html = Render(MakePage(UnevenScenario(), {"1f1b"}));
  const std::string policy =
      Between(html, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
  EXPECT_THAT(policy, testing::StartsWith("default-src &#39;none&#39;"));
  EXPECT_THAT(policy, testing::ContainsRegex("script-src &#39;sha256-[A-Za-z0-9+/]{43}=&#39;;"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  for (const char* address : {"http://", "https://", "src=\"", "@import"}) {
    std::string_view rest = html;
    // The name of SVG's namespace in the icon is not loaded.
    for (size_t at = rest.find(address); at != std::string_view::npos; at = rest.find(address)) {
      rest.remove_prefix(at);
      EXPECT_TRUE(rest.starts_with("http://www.w3.org/2000/svg")) << rest.substr(0, 60);
      rest.remove_prefix(1);
    }
  }
}

TEST(HtmlReport, SaysWhyAScheduleCannotRunAndWhatTheScenarioWas) {
  ScenarioForTest scenario = UnevenScenario();
  scenario.micro_batches = 7;  // DualPipe wants an even number
  const PageForTest page = MakePage(scenario, {"1f1b", "dualpipe"});
  const std::string html = HtmlReport({.comparison = page.comparison,
                                       .runs = page.runs,
                                       .scenario_file = "a.textproto",
                                       .scenario_text = "ranks: 4\t# four\r\n",
                                       .provenance = {{"profile", "typed in"}}});
  EXPECT_THAT(html, HasSubstr("cannot run: "));
  EXPECT_THAT(html, HasSubstr("<pre tabindex=\"0\"><code>ranks: 4\t# four\n</code></pre>"));
  EXPECT_THAT(html, HasSubstr("<dt>profile</dt><dd>typed in</dd>"));
  EXPECT_THAT(MisplacedTags(html), IsEmpty());
}

TEST(HtmlReport, IsMadeEvenWhereNothingRuns) {
  PageForTest page = MakePage(UnevenScenario(), {"1f1b"});
  page.comparison.results[0].summary.reset();
  page.comparison.one_f_one_b.reset();
  page.runs[0] = {};
  const std::string html = Render(page);
  EXPECT_THAT(html, HasSubstr("No schedule can run here"));
  EXPECT_THAT(MisplacedTags(html), IsEmpty());
}

TEST(HtmlReport, WantsARunForEachResult) {
  const PageForTest page = MakePage(UnevenScenario(), {"1f1b"});
  EXPECT_THROW(HtmlReport({.comparison = page.comparison}), InvariantError);
}

TEST(HtmlText, EscapesMarkupAndReplacesWhatIsNotText) {
  EXPECT_EQ(EscapeHtml("a<b>&\"c\"'"), "a&lt;b&gt;&amp;&quot;c&quot;&#39;");
  EXPECT_EQ(EscapeHtml("tab\tline\r\nnext\rlast"), "tab\tline\nnext\nlast");
  EXPECT_EQ(EscapeHtml("\u00fc\u20ac\U0001F600"), "\u00fc\u20ac\U0001F600");
  // A stray byte, an overlong '/', a surrogate, a cut character, a control.
  for (const std::string bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82", "\x1b"}) {
    const std::string shown = EscapeHtml("<" + bad + ">");
    EXPECT_TRUE(shown.starts_with("&lt;\xEF\xBF\xBD")) << shown;
    EXPECT_TRUE(shown.ends_with("&gt;")) << shown;
  }
}

TEST(HtmlText, Base64IsTheStandardsExamples) {
  const std::pair<const char*, const char*> examples[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"}};  // RFC 4648, section 10
  for (const auto& [bytes, text] : examples) EXPECT_EQ(Base64(bytes), text);
  EXPECT_EQ(BytesOfHex("00ff7f"), std::string("\x00\xff\x7f", 3));
}

}  // namespace
}  // namespace spiritlevel
