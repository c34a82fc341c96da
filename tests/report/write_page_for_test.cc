// write_page_for_test FOLDER: pages and their JSON for html_browser_test.py.
//
//   uneven.html, uneven.json    unequal stages, messages, launch, tail, a limit; two iterations
//   large.html                  16 ranks, 256 micro-batches, all schedules
//   sums.html                   sums of gradients, parts of ops, a rejected version; two iterations
//   hostile.html                names that try to be markup
//   verify.html, verify.json    schedules predicted and measured
//   empty.html                  one rank, and nothing takes any time or memory
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "report/json.h"
#include "tests/report/page_for_test.h"
#include "tests/report/sums_for_test.h"
#include "tests/report/verification_for_test.h"

namespace spiritlevel {
namespace {

ScenarioForTest Uneven() {
  ScenarioForTest scenario{
      .ranks = 4,
      .micro_batches = 8,
      .common = {.hop = {.latency = 400'000, .busy = 300'000, .bytes = 1 << 25},
                 .launch = 11'000,
                 .optimizer = 5'000'000,
                 .barrier = 900'000,
                 .static_bytes = Bytes{1} << 30},
      .memory_limit = Bytes{8} << 30};
  for (TimeNs row = 0; row < 4; ++row) {
    scenario.rows.push_back({.forward = 9'000'000 + 500'000 * row,
                             .input_grad = 8'000'000 + 700'000 * row,
                             .weight_grad = 7'000'000 - 600'000 * row,
                             .activation = 900'000'000,
                             .weight_state = 360'000'000});
  }
  return scenario;
}

ScenarioForTest Large() {
  ScenarioForTest scenario = Uneven();
  scenario.rows.clear();
  scenario.cost = {.forward = 11'307'000,
                   .input_grad = 11'254'000,
                   .weight_grad = 8'101'000,
                   .activation = 1'163'919'360,
                   .weight_state = 503'316'480};
  scenario.ranks = 16;
  scenario.micro_batches = 256;
  scenario.memory_limit = Bytes{80} << 30;
  return scenario;
}

void Write(const std::filesystem::path& folder, const std::string& name, const PageForTest& page) {
  WriteFile(folder / (name + ".html"),
            HtmlReport({.comparison = page.comparison,
                        .runs = page.runs,
                        .scenario_file = name + ".textproto",
                        .scenario_text = "# " + page.comparison.scenario + "\nranks: 4\n",
                        .provenance = {{"profile", "made up for a test"}}}));
  WriteFile(folder / (name + ".json"), ToJson(page.comparison));
}

void WriteVerified(const std::filesystem::path& folder) {
  const VerifiedForTest verified = DrawnForTest();
  WriteFile(folder / "verify.html",
            VerificationPage({.verification = verified.verification,
                              .drawings = verified.drawings,
                              .scenario_file = "verify.textproto",
                              .scenario_text = "ranks: 4\n",
                              .provenance = {{"costs", "made up for a test"}}}));
  WriteFile(folder / "verify.json", VerificationJson(verified.verification));
}

void WriteAll(const std::filesystem::path& folder) {
  Write(folder, "uneven", MakePage(Uneven(), {}, /*iterations=*/2));
  Write(folder, "large", MakePage(Large()));
  Write(folder, "sums", MakePage(EverythingOnAPage(), /*iterations=*/2));
  PageForTest hostile = MakePage(Uneven(), {"1f1b", "zb-h1"});
  const std::string name = "</script><script>window.owned = 1</script><!--<img src=x>&\"'\xff";
  hostile.comparison.scenario = name;
  hostile.comparison.results[1].schedule = name;
  hostile.comparison.results[1].reason = name;
  Write(folder, "hostile", hostile);
  WriteVerified(folder);
  Write(folder, "empty", MakePage({.ranks = 1, .micro_batches = 1}, {"1f1b", "gpipe"}));
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_page_for_test FOLDER\n", stderr);
    return 2;
  }
  spiritlevel::WriteAll(argv[1]);
}
