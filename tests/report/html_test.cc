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
#include "tests/report/page_for_test.h"

namespace spiritlevel {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

TEST(HtmlReport, ShowsHowFarEachIsFromItsBoundOrWhyThereIsNone) {
  PageForTest page = MakePage(UnevenScenario(), {"1f1b", "zb-h1", "zb-v"});
  const Bound bound{.value = 10'000, .reason = "work of rank 0"};
  page.comparison.results[0].certificate = Certify(bound, 12'500);
  page.comparison.results[1].certificate = Certify(bound, 10'000);
  page.comparison.results[2].certificate_note = "no bound is <of> this placement";
  const std::string html = Render(page);
  EXPECT_THAT(html, HasSubstr("<td data-key=\"gap\" data-value=\"0.25\">25.0</td>"));
  EXPECT_THAT(html, HasSubstr("data-value=\"0\">0.00 <span class=\"badge good\">optimal</span>"));
  EXPECT_THAT(html, HasSubstr("<td>–<sup>"));
  EXPECT_THAT(html, HasSubstr("no bound is &lt;of&gt; this placement</li>"));
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
