#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "report/html_assets.h"
#include "report/html_text.h"
#include "report/text.h"
#include "report/verification.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

template <class Names>
Json NamesOf(int count) {
  Json names = Json::array();
  for (int i = 0; i < count; ++i) names.push_back(std::string(Name(static_cast<Names>(i))));
  return names;
}

std::string Signed(double share) { return fmt::format("{:+.1f}", 100 * share); }

// Ids and classes are those that report/assets/ works with.
class Page {
 public:
  explicit Page(const VerificationPageInput& input) : input_(input), all_(input.verification) {
    SPIRITLEVEL_CHECK(input.drawings.size() == all_.schedules.size(),
                      "the page has a drawing, maybe empty, for each schedule");
  }

  std::string ToString() const {
    std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n" + Head() + "<body>\n" + TopBar();
    out += "<main>\n" + Verdict() + Drawings() + Numbers() + Memory() + Validations() + Passes() +
           Scenario();
    out += Provenance() + "</main>\n" + Help();
    out += "<script type=\"application/json\" id=\"data\">" + Data() + "</script>\n<script>";
    return out + std::string(PageScript()) + "</script>\n</body>\n</html>\n";
  }

 private:
  std::string Measured() const { return all_.emulated ? "emulated" : "measured"; }

  std::string Head() const {
    const std::string policy = fmt::format(
        "default-src &#39;none&#39;; script-src &#39;sha256-{}&#39;; style-src "
        "&#39;sha256-{}&#39;; img-src data:; base-uri &#39;none&#39;; form-action &#39;none&#39;",
        Base64(BytesOfHex(PageScriptSha256())), Base64(BytesOfHex(PageStyleSha256())));
    return fmt::format(
        "<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" "
        "content=\"{}\">\n<meta name=\"viewport\" content=\"width=device-width, "
        "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<title>{}{} – Spiritlevel</title>\n<style>{}</style>\n</head>\n",
        policy, all_.emulated ? "emulated: " : "", EscapeHtml(all_.scenario), PageStyle());
  }

  std::string TopBar() const {
    return "<header class=\"top\"><a class=\"brand\" href=\"#verdict\"><span>Spiritlevel</span></a>"
           "<nav aria-label=\"Sections\"><a href=\"#timelines\">Timelines</a><a "
           "href=\"#results\">Numbers</a><a href=\"#memory\">Memory</a>" +
           std::string(HasValidations() ? "<a href=\"#validation\">Validation</a>" : "") +
           "<a href=\"#passes\">Passes</a><a href=\"#scenario\">Scenario</a></nav><div "
           "class=\"tools\"><button type=\"button\" id=\"theme\">Theme: auto</button><button "
           "type=\"button\" id=\"help-button\" aria-haspopup=\"dialog\">Keys <kbd>?</kbd></button>"
           "</div></header>\n";
  }

  std::vector<const VerifiedSchedule*> Ran() const {
    std::vector<const VerifiedSchedule*> ran;
    for (const VerifiedSchedule& schedule : all_.schedules) {
      if (schedule.ran()) ran.push_back(&schedule);
    }
    return ran;
  }

  // The largest of what is not noise.
  template <class Of>
  double Worst(const Of& of) const {
    double worst = 0;
    for (const VerifiedSchedule* schedule : Ran()) {
      if (!schedule->noisy()) worst = std::max(worst, std::abs(of(*schedule)));
    }
    return worst;
  }

  int CountOf(bool (*is)(const VerifiedSchedule&)) const {
    const std::vector<const VerifiedSchedule*> ran = Ran();
    return static_cast<int>(
        std::count_if(ran.begin(), ran.end(), [&](const auto* schedule) { return is(*schedule); }));
  }

  static std::string Figure(std::string_view name, const std::string& value,
                            const std::string& note) {
    return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name,
                       EscapeHtml(value), EscapeHtml(note));
  }

  std::string Verdict() const {
    const int ran = static_cast<int>(Ran().size());
    const int noisy = CountOf([](const VerifiedSchedule& s) { return s.noisy(); });
    std::string title = all_.emulated ? "Emulated, not computed" : "Prediction and measurement";
    std::string lead =
        all_.emulated
            ? "Passes slept for their time and computed nothing. What is held against the "
              "prediction here is ordering and communication."
            : fmt::format(
                  "{} ranks trained the model on this machine’s cores. Each schedule was "
                  "predicted before anything was run, then run {}, in turn with the others.",
                  all_.ranks, all_.rounds == 1 ? "once" : fmt::format("{} times", all_.rounds));
    if (all_.interrupted) lead += " It was interrupted: this is what was run until then.";
    std::string out = fmt::format(
        "<section id=\"verdict\" aria-labelledby=\"headline\">\n<p class=\"eyebrow\"><b>{}</b>"
        "<span>{} ranks as {} · {} micro-batches · posting {} · tail {}</span></p>\n"
        "<h1 id=\"headline\">{}</h1>\n<p class=\"lead\">{}</p>\n<dl class=\"figures\">\n",
        EscapeHtml(all_.scenario), all_.ranks, EscapeHtml(all_.transport), all_.micro_batches,
        EscapeHtml(all_.posting), EscapeHtml(all_.tail), EscapeHtml(title), EscapeHtml(lead));
    const bool is_judged = ran > noisy;  // what is noise has no error
    out += Figure("largest error of a step",
                  is_judged ? Percent(Worst([](const auto& s) { return s.step_error(); })) : "–",
                  fmt::format("of {} that are not too noisy", ran - noisy));
    out += Figure("largest error of idle share",
                  is_judged ? fmt::format("{:.1f} points", 100 * Worst([](const auto& s) {
                                                             return s.idle_difference();
                                                           }))
                            : "–",
                  "predicted less " + Measured());
    const OrderVerdict order = JudgeOrder(all_);
    out += Figure(
        "order of schedules",
        fmt::format("{} of {}", order.pairs - static_cast<int>(order.wrong.size()), order.pairs),
        "pairs that differ by more than 2 %");
    if (!all_.emulated) {
      const int equal =
          CountOf([](const VerifiedSchedule& s) { return s.gradients_equal.value_or(false); });
      out += Figure("gradients equal", fmt::format("{} of {}", equal, ran), "bit by bit");
    }
    const BarSummary bar = SumUpBars(all_);
    out +=
        Figure("within the bar", fmt::format("{} of {}", bar.within.size(), ran), BarInWords(all_));
    out += Figure("too noisy", fmt::format("{} of {}", noisy, ran), "spread above 2 %");
    const size_t resident = bar.resident_within.size() + bar.resident_missed.size();
    if (resident > 0) {
      out += Figure("resident size", fmt::format("{} of {}", bar.resident_within.size(), resident),
                    fmt::format("within {:.0f} % of the ledger", 100 * kResidentBar));
    }
    return out + "</dl>\n" + Wrong() +
           "<noscript><p class=\"warning\">The timelines are drawn by the script of this file, "
           "which is switched off. The numbers below do not need it.</p></noscript>\n</section>\n";
  }

  std::string Wrong() const {
    std::vector<std::string> wrong;
    for (const VerifiedSchedule& s : all_.schedules) {
      const std::vector<std::string> words = WrongsOf(s, all_);
      if (words.empty()) continue;
      wrong.push_back(fmt::format("{}: {}", s.schedule, fmt::join(words, ", ")));
    }
    if (wrong.empty()) return "";
    return fmt::format("<p class=\"warning\">What was run is not what was asked for. {}.</p>\n",
                       EscapeHtml(fmt::format("{}", fmt::join(wrong, "; "))));
  }

  // Filled in by the script.
  std::string Drawings() const {
    return fmt::format(
        "<section id=\"timelines\" class=\"drawn\" aria-labelledby=\"timelines-title\">\n"
        "<h2 id=\"timelines-title\">One iteration, predicted above and {} below</h2>\n"
        "<p>The {} one is of the last run, the iteration nearest to the median. One row a rank, "
        "one time axis for all.</p>\n<div id=\"panels\"></div>\n</section>\n"
        "<section id=\"stalls\" class=\"drawn\" aria-labelledby=\"stalls-title\">\n"
        "<h2 id=\"stalls-title\">Where each rank’s time goes</h2>\n<div "
        "id=\"bars\"></div>\n</section>\n"
        "<section id=\"steps\" class=\"drawn\" aria-labelledby=\"steps-title\">\n"
        "<h2 id=\"steps-title\">What the predicted step is made of</h2>\n"
        "<div id=\"waterfall\"></div>\n</section>\n",
        Measured(), Measured());
  }

  static std::string Cell(std::string_view key, const Json& value, std::string_view shown) {
    return fmt::format("<td data-key=\"{}\" data-value=\"{}\">{}</td>", key,
                       EscapeHtml(value.dump()), EscapeHtml(shown));
  }

  std::string Open(std::string_view id, std::string_view title) const {
    return fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\n"
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"{0}-title\">\n"
        "<table>\n",
        id, title);
  }
  static std::string Close() { return "</tbody>\n</table>\n</div>\n"; }

  static std::string Header(const std::vector<std::pair<std::string, int>>& groups,
                            const std::vector<std::string>& columns) {
    std::string out = "<thead>\n<tr><th scope=\"col\" rowspan=\"2\">schedule</th>";
    for (const auto& [name, count] : groups) {
      out += fmt::format("<th scope=\"colgroup\" colspan=\"{}\">{}</th>", count, name);
    }
    out += "</tr>\n<tr>";
    for (const std::string& column : columns) out += "<th scope=\"col\">" + column + "</th>";
    return out + "</tr>\n</thead>\n<tbody>\n";
  }

  static std::string RowHead(const VerifiedSchedule& schedule) {
    return fmt::format("<tr data-schedule=\"{0}\"><th scope=\"row\">{0}</th>",
                       EscapeHtml(schedule.schedule));
  }

  std::string VerdictOf(const VerifiedSchedule& s) const {
    std::string out;
    for (const std::string& wrong : WrongsOf(s, all_)) out += Badge("bad", wrong);
    const BarVerdict bar = JudgeBar(s, all_);
    out += Badge(bar == BarVerdict::kWithin ? "good" : "bad", Name(bar));
    if (s.gradients_equal == true) out += Badge("good", "gradients equal");
    if (all_.emulated) out += Badge("", "emulated");
    return out;
  }

  std::string Numbers() const {
    TimeNs step = 1;
    TimeNs waits = 1;
    for (const VerifiedSchedule* s : Ran()) {
      step = std::max({step, s->predicted.step, s->measured.step});
      waits =
          std::max({waits, s->predicted.exposed_communication, s->measured.exposed_communication});
    }
    const Scale steps = Scale::ForTimes(step);
    const Scale exposed = Scale::ForTimes(waits);
    const std::string measured = Measured();
    std::string out = Open("results", "The numbers");
    out += Header(
        {{"step, " + steps.unit(), 3},
         {"tokens/s", 2},
         {"idle share, %", 3},
         {"bubble rate, %", 2},
         {"exposed, " + exposed.unit(), 2},
         {"spread, %", 3},
         {"", 1}},
        {"predicted", measured, "error, %", "predicted", measured, "predicted", measured, "points",
         "predicted", measured, "predicted", measured, "steps", "rounds", "range", ""});
    for (const VerifiedSchedule& s : all_.schedules) {
      out += RowHead(s);
      if (!s.ran()) {
        const bool failed = !s.failures.empty();
        out += fmt::format("<td class=\"reason\" colspan=\"16\">{}: {}</td></tr>\n",
                           failed ? "failed" : "not run",
                           EscapeHtml(OneParagraph(failed ? s.failures.front() : s.reason)));
        continue;
      }
      const auto time = [&](std::string_view key, TimeNs value, const Scale& scale) {
        return Cell(key, value, scale.Number(value));
      };
      const auto share = [&](std::string_view key, double value) {
        return Cell(key, value, PercentNumber(value));
      };
      out +=
          time("predicted_step_ns", s.predicted.step, steps) +
          time("measured_step_ns", s.measured.step, steps) +
          Cell("step_error", s.step_error(), Signed(s.step_error())) +
          Tokens("tokens_per_second_predicted", s.predicted.step) +
          Tokens("tokens_per_second_measured", s.measured.step) +
          share("idle_share_predicted", s.predicted.idle_share) +
          share("idle_share_measured", s.measured.idle_share) +
          Cell("idle_difference", s.idle_difference(), Signed(s.idle_difference())) +
          share("bubble_rate_predicted", s.predicted.bubble_rate) +
          share("bubble_rate_measured", s.measured.bubble_rate) +
          time("exposed_communication_predicted_ns", s.predicted.exposed_communication, exposed) +
          time("exposed_communication_measured_ns", s.measured.exposed_communication, exposed) +
          share("spread", s.spread) +
          (s.round_steps.size() < 2 ? "<td>–</td>" : share("round_spread", s.round_spread())) +
          share("range", s.range()) + "<td>" + VerdictOf(s) + "</td></tr>\n";
    }
    out += Close() + Notes();
    return out +
           "<dl class=\"terms\">\n"
           "<dt>step</dt><dd>From a rank's first op to its first op one iteration later, the "
           "largest over ranks; medians over all counted iterations of all runs.</dd>\n"
           "<dt>idle share</dt><dd>Of these times, summed over ranks, what no op runs in; the "
           "tail counts as idle.</dd>\n"
           "<dt>bubble rate</dt><dd>(longest rank span − largest busy time) / longest rank "
           "span.</dd>\n"
           "<dt>exposed</dt><dd>What ranks wait for that has been computed and has not "
           "arrived; all ranks, one iteration.</dd>\n"
           "<dt>spread</dt><dd>Of the middle half of the measured steps, and of the medians of "
           "the rounds, from the smallest to the largest; over the median. The passes that were "
           "timed before any run have one, too. If one of these is above 2 % a schedule is too "
           "noisy, and neither within the bar nor beyond. The range is that of all steps, "
           "outliers included.</dd>\n</dl>\n"
           "</section>\n";
  }

  std::string Tokens(std::string_view key, TimeNs step) const {
    if (all_.tokens_per_step == 0 || step == 0) return "<td>–</td>";
    const double rate = static_cast<double>(all_.tokens_per_step) * 1e9 / static_cast<double>(step);
    return Cell(key, rate, fmt::format("{:.0f}", rate));
  }

  std::string Notes() const {
    std::string out;
    const auto add = [&](const VerifiedSchedule& s, const std::string& text) {
      if (!text.empty()) {
        out += fmt::format("<li><b>{}</b> {}</li>\n", EscapeHtml(s.schedule), EscapeHtml(text));
      }
    };
    for (const VerifiedSchedule& s : all_.schedules) {
      for (const std::string& finding : s.findings) add(s, finding);
      add(s, s.gradients_note);
      for (const std::string& failure : s.failures) add(s, failure);
    }
    return out.empty() ? "" : "<ul class=\"notes\">\n" + out + "</ul>\n";
  }

  std::string Memory() const {
    Bytes largest = 1;
    for (const VerifiedSchedule* s : Ran()) {
      for (const VerifiedRank& rank : s->memory) {
        largest = std::max({largest, rank.peak.ledger, rank.peak.live});
      }
      largest = std::max(largest, s->resident_bytes.value_or(0));
    }
    const Scale scale = Scale::ForMemory(largest);
    std::vector<std::string> columns = {"rank", "ledger", "live", "equal", "handed over"};
    for (int c = 0; c < kNumMemoryCategories; ++c) {
      columns.push_back(std::string(Phrase(static_cast<MemoryCategory>(c))));
    }
    columns.insert(columns.end(), {"B", "W", "resident", "of ledger"});
    std::string out = Open("memory", "Memory");
    out += Header({{"", 1},
                   {"peak, " + scale.unit(), 4},
                   {"most of each category between ops, " + scale.unit(), kNumMemoryCategories},
                   {"micro-batches waiting for", 2},
                   {"process", 2}},
                  columns);
    for (const VerifiedSchedule* s : Ran()) {
      for (size_t rank = 0; rank < s->memory.size(); ++rank) {
        out += RowHead(*s) + fmt::format("<td>{}</td>", rank) + Peaks(s->memory[rank], scale);
        out += Count("peak_waiting_b_measured", s->waiting_b_measured);
        out += Count("peak_waiting_w_measured", s->waiting_w_measured);
        out += (rank == 0 ? Resident(*s, scale) : "<td></td><td></td>") + "</tr>\n";
      }
    }
    return out + Close() +
           "<dl class=\"terms\">\n"
           "<dt>live</dt><dd>By the meter that hands out the tensors. In an F&amp;B pair a core "
           "runs one pass after the other, and the room of their overlap is set aside as the costs "
           "have it: there live bytes cannot contradict the ledger.</dd>\n"
           "<dt>handed over</dt><dd>Results on their way and contributions to sums, the most at "
           "one time: in neither ledger nor live bytes.</dd>\n"
           "<dt>of ledger</dt><dd>The process’s resident size over the ledgers’ peaks of all ranks "
           "together; the bar is 10 %, and missing it no failure.</dd>\n</dl>\n</section>\n";
  }

  // Emulated passes keep nothing that could be measured.
  std::string Peaks(const VerifiedRank& of, const Scale& scale) const {
    std::string out = Cell("ledger_peak_bytes", of.peak.ledger, scale.Number(of.peak.ledger));
    if (all_.emulated) {
      out += "<td>–</td><td>–</td>";
    } else {
      out += Cell("live_peak_bytes", of.peak.live, scale.Number(of.peak.live));
      out += fmt::format("<td class=\"{}\">{}</td>", of.matches() ? "good" : "bad",
                         of.matches() ? "yes" : "no");
    }
    out += of.handed_over
               ? Cell("most_handed_over_bytes", *of.handed_over, scale.Number(*of.handed_over))
               : "<td>–</td>";
    for (const Bytes bytes : of.peak.most) out += fmt::format("<td>{}</td>", scale.Number(bytes));
    return out;
  }

  static std::string Count(std::string_view key, const std::optional<int>& count) {
    return count ? Cell(key, *count, fmt::format("{}", *count)) : "<td>–</td>";
  }

  static std::string Resident(const VerifiedSchedule& s, const Scale& scale) {
    const std::optional<double> ratio = s.resident_ratio();
    if (!ratio) return "<td>–</td><td>–</td>";
    return Cell("resident_bytes", *s.resident_bytes, scale.Number(*s.resident_bytes)) +
           Cell("resident_ratio", *ratio,
                fmt::format("{:.2f}, {}", *ratio,
                            *s.resident_within_bar() ? "within 10 %" : "beyond 10 %"));
  }

  bool HasValidations() const {
    return std::any_of(all_.schedules.begin(), all_.schedules.end(),
                       [](const VerifiedSchedule& s) { return s.validation.has_value(); });
  }

  std::string Validations() const {
    if (!HasValidations()) return "";
    TimeNs largest = 1;
    TimeNs largest_cost = 1;
    for (const VerifiedSchedule& s : all_.schedules) {
      if (!s.validation) continue;
      largest = std::max({largest, s.validation->barrier_step.predicted,
                          s.validation->normal_step.predicted, s.validation->normal_step.measured});
      if (s.validation->rollback) {
        largest_cost = std::max({largest_cost, std::abs(s.validation->rollback->predicted),
                                 std::abs(s.validation->rollback->measured)});
      }
      largest_cost = std::max(largest_cost, std::abs(s.validation->normal_path.measured));
    }
    const Scale steps = Scale::ForTimes(largest);
    const Scale costs = Scale::ForTimes(largest_cost);
    const std::string measured = Measured();
    std::string out = Open("validation", "What validating behind the step costs");
    out += Header({{"step with a barrier, " + steps.unit(), 2},
                   {"step with this tail, " + steps.unit(), 2},
                   {"cost of the normal path, " + costs.unit(), 3},
                   {"cost of one rollback, " + costs.unit(), 3},
                   {"", 1}},
                  {"predicted", measured, "predicted", measured, "predicted", measured,
                   "difference", "predicted", measured, "difference", ""});
    for (const VerifiedSchedule& s : all_.schedules) {
      if (s.validation) out += RowHead(s) + ValidationCells(s, steps, costs) + "</tr>\n";
    }
    return out + Close() +
           "<dl class=\"terms\">\n"
           "<dt>normal path</dt><dd>The step with this tail less that of the same schedule with a "
           "barrier, nothing rejected: of runs that take turns, the median of the rounds’ "
           "differences.</dd>\n"
           "<dt>rollback</dt><dd>In runs of their own the last stage’s gradient passes the "
           "threshold in one iteration: other stages have stepped by then, and are taken back. "
           "What two iterations from the rejected one on take, less two normal steps of the same "
           "run.</dd>\n"
           "</dl>\n</section>\n";
  }

  std::string ValidationCells(const VerifiedSchedule& s, const Scale& steps,
                              const Scale& costs) const {
    const ValidationCost& cost = *s.validation;
    const auto step = [&](std::string_view key, TimeNs value) {
      return Cell(key, value, steps.Number(value));
    };
    const auto more = [&](const std::string& key, const PredictedAndMeasured& of) {
      const auto one = [&](const std::string& which, TimeNs value) {
        return Cell(key + which, value,
                    fmt::format("{}{}", value < 0 ? "−" : "+", costs.Number(std::abs(value))));
      };
      return one("_predicted_ns", of.predicted) + one("_measured_ns", of.measured) +
             one("_difference_ns", of.difference());
    };
    std::string out = step("barrier_step_predicted_ns", cost.barrier_step.predicted) +
                      step("barrier_step_measured_ns", cost.barrier_step.measured) +
                      step("normal_step_predicted_ns", cost.normal_step.predicted) +
                      step("normal_step_measured_ns", cost.normal_step.measured) +
                      more("normal_path_cost", cost.normal_path);
    out += cost.rollback ? more("rollback", *cost.rollback)
                         : fmt::format("<td class=\"reason\" colspan=\"3\">{}</td>",
                                       EscapeHtml(cost.rollback_note));
    out += "<td>";
    if (cost.rollback_equal) {
      out += *cost.rollback_equal ? Badge("good", "rolled back to the same bits")
                                  : Badge("bad", "rolled back to other bits");
    }
    if (!cost.memory_matches) out += Badge("bad", "ledger differs");
    if (cost.noisy() || s.noisy()) out += Badge("bad", "too noisy");
    return out + "</td>";
  }

  static std::string Badge(std::string_view kind, std::string_view text) {
    return fmt::format("<span class=\"badge {}\">{}</span> ", kind, text);
  }

  std::string Passes() const {
    TimeNs largest = 1;
    for (const VerifiedSchedule* s : Ran()) {
      for (const VerifiedPass& pass : s->passes) largest = std::max(largest, pass.p95);
    }
    const Scale scale = Scale::ForTimes(largest);
    std::string out = Open("passes", "Passes of each stage");
    out += Header({{"", 2}, {scale.unit(), 3}, {"GEMM", 1}, {"", 1}},
                  {"stage", "pass", "before any run", "P50", "P95", "% of best", "samples"});
    for (const VerifiedSchedule* s : Ran()) {
      for (const VerifiedPass& pass : s->passes) {
        out += RowHead(*s) + fmt::format(
                                 "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
                                 "<td>{}</td><td>{}</td></tr>\n",
                                 pass.stage, Name(pass.pass), scale.Number(pass.calibrated),
                                 scale.Number(pass.p50), scale.Number(pass.p95),
                                 pass.gemm_efficiency ? PercentNumber(*pass.gemm_efficiency) : "–",
                                 pass.samples);
      }
    }
    return out + Close() + "</section>\n";
  }

  std::string Scenario() const {
    return fmt::format(
        "<section id=\"scenario\" aria-labelledby=\"scenario-title\">\n<h2 "
        "id=\"scenario-title\">The scenario</h2>\n<p class=\"file\">{}</p>\n<pre "
        "tabindex=\"0\"><code>{}</code></pre>\n</section>\n",
        EscapeHtml(input_.scenario_file), EscapeHtml(input_.scenario_text));
  }

  std::string Provenance() const {
    std::string out =
        "<section id=\"provenance\" aria-labelledby=\"provenance-title\">\n<h2 "
        "id=\"provenance-title\">Where the numbers come from</h2>\n<dl class=\"terms\">\n";
    for (const ProvenanceLine& line : input_.provenance) {
      out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", EscapeHtml(line.label), EscapeHtml(line.text));
    }
    return out + "</dl>\n</section>\n";
  }

  static std::string Help() {
    return "<dialog id=\"help\" aria-labelledby=\"help-title\">\n<h2 id=\"help-title\">Keys</h2>\n"
           "<dl class=\"keys\">\n<dt><kbd>+</kbd> <kbd>−</kbd></dt><dd>zoom in and out</dd>\n"
           "<dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>move along the time axis</dd>\n"
           "<dt><kbd>Home</kbd></dt><dd>everything there is</dd>\n"
           "<dt><kbd>↑</kbd> <kbd>↓</kbd></dt><dd>choose a rank</dd>\n"
           "<dt><kbd>,</kbd> <kbd>.</kbd></dt><dd>the op before and after</dd>\n"
           "<dt><kbd>Esc</kbd></dt><dd>put the op away</dd>\n"
           "<dt><kbd>T</kbd></dt><dd>light, dark, or as the system has it</dd>\n</dl>\n"
           "<button type=\"button\" id=\"help-close\">Close</button>\n</dialog>\n"
           "<div id=\"tip\" role=\"tooltip\" hidden></div>\n"
           "<div id=\"spoken\" class=\"unseen\" aria-live=\"polite\"></div>\n";
  }

  std::string Data() const {
    Json data;
    data["scenario"] = all_.scenario;
    data["ranks"] = all_.ranks;
    data["micro_batches"] = all_.micro_batches;
    data["emulated"] = all_.emulated;
    data["memory_limit_bytes"] = all_.memory_limit ? Json(*all_.memory_limit) : Json(nullptr);
    data["stall_categories"] = NamesOf<StallCategory>(kNumStallCategories);
    data["memory_categories"] = NamesOf<MemoryCategory>(kNumMemoryCategories);
    data["waterfall_parts"] = NamesOf<WaterfallPart>(kNumWaterfallParts);
    data["runs"] = Json::array();
    for (const VerificationDrawing& drawing : input_.drawings) {
      data["runs"].push_back(DataOf(drawing.predicted, drawing.predicted_run));
      data["runs"].push_back(DataOf(drawing.measured, drawing.measured_run));
    }
    return EscapeJsonForScript(data.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  // As of HtmlReport().
  static Json DataOf(const Result& result, const HtmlRun& run) {
    Json json;
    json["schedule"] = result.schedule;
    json["advised"] = false;
    json["placement"] = result.placement;
    json["valid"] = result.valid;
    json["fits"] = result.fits;
    json["reason"] = "";
    json["ops"] = run.ops;
    if (!result.summary) return json;
    const Summary& s = *result.summary;
    json["step_ns"] = s.step;
    json["rejection"] = nullptr;
    json["makespan_ns"] = s.makespan;
    json["bubble_rate"] = s.bubble_rate;
    json["bubble_fraction"] = s.bubble_fraction;
    json["peak_bytes"] = s.peak_bytes;
    json["fullest_rank"] = s.fullest_rank();
    json["busy_ns"] = s.stalls.busy;
    json["stalls_ns"] = s.stalls.stalls;
    json["waterfall_ns"] = run.waterfall ? Json(run.waterfall->parts) : Json(nullptr);
    json["packed"] = run.packed.empty() ? Json(nullptr) : Json(Base64(run.packed));
    return json;
  }

  const VerificationPageInput& input_;
  const Verification& all_;
};

}  // namespace

std::string VerificationPage(const VerificationPageInput& input) { return Page(input).ToString(); }

}  // namespace spiritlevel
