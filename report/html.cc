#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "report/advice.h"
#include "report/figures.h"
#include "report/html_assets.h"
#include "report/html_table.h"
#include "report/html_text.h"
#include "report/table.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLogo =
    "<svg class=\"logo\" viewBox=\"0 0 64 24\" aria-hidden=\"true\">"
    "<rect x=\"1.5\" y=\"4.5\" width=\"61\" height=\"15\" rx=\"7.5\"/>"
    "<path d=\"M24 4.5v15M40 4.5v15\"/><ellipse cx=\"32\" cy=\"11\" rx=\"6.5\" ry=\"4.2\"/></svg>";

constexpr std::string_view kIcon =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E"
    "%3Crect x='1' y='6' width='22' height='12' rx='6' fill='%23009e73'/%3E"
    "%3Cellipse cx='12' cy='11' rx='5' ry='3.5' fill='%23fff'/%3E%3C/svg%3E";

std::string Policy() {
  return fmt::format(
      "default-src &#39;none&#39;; script-src &#39;sha256-{}&#39;; style-src &#39;sha256-{}&#39;; "
      "img-src data:; base-uri &#39;none&#39;; form-action &#39;none&#39;",
      Base64(BytesOfHex(PageScriptSha256())), Base64(BytesOfHex(PageStyleSha256())));
}

std::string Count(int64_t number, std::string_view what, std::string_view plural_ending) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : plural_ending);
}

template <class Names>
Json NamesOf(int count) {
  Json names = Json::array();
  for (int i = 0; i < count; ++i) names.push_back(std::string(Name(static_cast<Names>(i))));
  return names;
}

class Page {
 public:
  explicit Page(const HtmlReportInput& input)
      : input_(input), comparison_(input.comparison), advice_(FindAdvice(input.comparison)) {
    SPIRITLEVEL_CHECK(input.runs.size() == comparison_.results.size(),
                      "the page has a run, maybe empty, for each result");
  }

  std::string ToString() const {
    std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n" + Head() + "<body>\n";
    out += "<a class=\"skip\" href=\"#timelines\">Skip to the timelines</a>\n" + TopBar();
    out += "<main>\n" + Verdict() + Drawings() + Results() + Scenario() + Provenance();
    out += "</main>\n" + Help();
    out += "<script type=\"application/json\" id=\"data\">" + Data() + "</script>\n<script>";
    out += PageScript();
    return out + "</script>\n</body>\n</html>\n";
  }

 private:
  std::string Head() const {
    return fmt::format(
               "<head>\n<meta charset=\"utf-8\">\n"
               "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
               "<meta name=\"color-scheme\" content=\"light dark\">\n"
               "<title>{} – Spiritlevel</title>\n<link rel=\"icon\" href=\"{}\">\n<style>",
               Policy(), EscapeHtml(comparison_.scenario), kIcon) +
           std::string(PageStyle()) + "</style>\n</head>\n";
  }

  static std::string TopBar() {
    return fmt::format(
        "<header class=\"top\"><a class=\"brand\" href=\"#verdict\">{}<span>Spiritlevel</span></a>"
        "<nav aria-label=\"Sections\"><a href=\"#steps\">Step</a><a href=\"#timelines\">Timelines"
        "</a><a href=\"#stalls\">Waiting</a><a href=\"#results\">Numbers</a>"
        "<a href=\"#scenario\">Scenario</a></nav>"
        "<div class=\"tools\"><button type=\"button\" id=\"theme\">Theme: auto</button>"
        "<button type=\"button\" id=\"help-button\" aria-haspopup=\"dialog\">Keys "
        "<kbd>?</kbd></button></div></header>\n",
        kLogo);
  }

  std::string Headline() const {
    if (advice_.kind == AdviceKind::kNothingRuns) return "No schedule can run here";
    if (advice_.schedule.empty()) return "No schedule fits the memory limit";
    if (advice_.schedule == "1f1b") return "1F1B is right here";
    return "Use " + advice_.schedule;
  }

  std::string Facts() const {
    std::string facts = Count(comparison_.ranks, "rank", "s") + " · " +
                        Count(comparison_.micro_batches, "micro-batch", "es");
    const std::string choices = Choices(comparison_);
    if (!choices.empty()) facts += " · " + choices;
    return facts + (HasLimit(comparison_) ? " · memory limit " + LimitWords(comparison_)
                                          : " · no memory limit");
  }

  std::string Verdict() const {
    std::string text = advice_.text;
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
      text[0] = static_cast<char>(text[0] - 'a' + 'A');
    }
    if (!text.empty() && text.back() != '.') text += '.';
    std::string out = fmt::format(
        "<section id=\"verdict\" aria-labelledby=\"headline\">\n<p class=\"eyebrow\">"
        "<b>{}</b><span>{}</span></p>\n<h1 id=\"headline\">{}</h1>\n<p class=\"lead\">{}</p>\n{}",
        EscapeHtml(comparison_.scenario), EscapeHtml(Facts()), EscapeHtml(Headline()),
        EscapeHtml(text), KeyFigures());
    for (const std::string& warning : comparison_.warnings) {
      out += fmt::format("<p class=\"warning\"><b>Warning</b> {}</p>\n", EscapeHtml(warning));
    }
    return out +
           "<noscript><p class=\"warning\">The timelines and bars are drawn by the script of this "
           "file, which is switched off. The numbers below do not need it.</p></noscript>\n"
           "</section>\n";
  }

  // Of the advised schedule.
  const Result* Advised() const {
    const auto at =
        std::find_if(comparison_.results.begin(), comparison_.results.end(),
                     [&](const Result& r) { return r.summary && r.schedule == advice_.schedule; });
    if (at != comparison_.results.end()) return &*at;
    // Advice weighs 1F1B whether or not it was asked for.
    const std::optional<Result>& base = comparison_.one_f_one_b;
    return base && base->summary && advice_.schedule == base->schedule ? &*base : nullptr;
  }

  static std::string Figure(std::string_view name, const std::string& value,
                            const std::string& note) {
    return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name,
                       EscapeHtml(value), EscapeHtml(note));
  }

  std::string KeyFigures() const {
    const Result* advised = Advised();
    if (advised == nullptr) return "";
    const Summary& s = *advised->summary;
    const Result* base = Baseline(comparison_);
    std::string out = "<dl class=\"figures\">\n";
    std::string note = base == nullptr || base->schedule == advised->schedule
                           ? "from one first F to the next"
                           : "1f1b: " + FormatTime(base->summary->step);
    if (advised->rejection) note += "; none rejected: " + FormatTime(s.period);
    out += Figure(advised->rejection
                      ? fmt::format("expected step at q = {}", advised->rejection->probability)
                      : "step",
                  FormatTime(s.step), note);
    const std::optional<double> speed_up = SpeedUp(*advised, comparison_);
    const std::optional<double> most = LargestSpeedUp(comparison_);
    if (speed_up && most) {
      out += Figure("speed-up over 1f1b", fmt::format("{:.2f}×", *speed_up),
                    fmt::format("at most {:.2f}× is possible", *most));
    }
    out += Figure("bubble rate", Percent(s.bubble_rate), "of the longest rank span");
    out += Figure("bubble fraction", Percent(s.bubble_fraction), "of ranks × makespan");
    out += Figure(
        "peak memory", FormatMemory(PeakBytes(s)),
        fmt::format("rank {}{}", s.fullest_rank(),
                    HasLimit(comparison_) ? " of " + LimitWords(comparison_) : ", no limit given"));
    return out + "</dl>\n";
  }

  // Filled in by the script.
  static std::string Drawings() {
    return "<section id=\"steps\" class=\"drawn\" aria-labelledby=\"steps-title\">\n"
           "<h2 id=\"steps-title\">What the step is made of</h2>\n"
           "<p>Each schedule is played again without its tail, without messages, without a bubble: "
           "what each of these adds to the ideal. Choose a schedule to see its steps.</p>\n"
           "<div id=\"waterfall\"></div>\n</section>\n"
           "<section id=\"timelines\" class=\"drawn\" aria-labelledby=\"timelines-title\">\n"
           "<h2 id=\"timelines-title\">Timelines and live memory</h2>\n"
           "<p>One row a rank, one time axis for all. Point at an op to see why it waited.</p>\n"
           "<div id=\"panels\"></div>\n</section>\n"
           "<section id=\"stalls\" class=\"drawn\" aria-labelledby=\"stalls-title\">\n"
           "<h2 id=\"stalls-title\">Where each rank's time goes</h2>\n"
           "<p>One iteration, one bar a rank. Busy time and the waits add up to the makespan, to "
           "the nanosecond.</p>\n<div id=\"bars\"></div>\n</section>\n";
  }

  std::string Results() const {
    return "<section id=\"results\" aria-labelledby=\"results-title\">\n"
           "<h2 id=\"results-title\">The numbers</h2>\n<p>" +
           EscapeHtml(spiritlevel::Headline(comparison_)) +
           "</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
           "aria-labelledby=\"results-title\">\n" +
           HtmlTable(comparison_, advice_.schedule) +
           "</div>\n<dl class=\"terms\">\n"
           "<dt>step</dt><dd>From a rank's first F to its first F one iteration later, in the "
           "steady state, the largest over ranks. Speed-up is by step." +
           Expected() +
           "</dd>\n"
           "<dt>bubble rate</dt><dd>(longest rank span − largest busy time) / longest rank span: "
           "the zero-bubble papers' number.</dd>\n"
           "<dt>bubble fraction</dt><dd>Idle share of ranks × makespan. The stalls sum to "
           "it.</dd>\n"
           "<dt>gap</dt><dd>How far the longest rank span lies above a bound that no order of its "
           "placement can be below, within the memory limit if there is one. Optimal: not at all, "
           "which proves that no order there is faster.</dd>\n"
           "<dt>waiting for</dt><dd>Most stage activations on a rank that wait for B, and for W. "
           "Where a rank holds v stages each is 1/v as large.</dd>\n"
           "<dt>sent</dt><dd>Bytes between ranks in one iteration.</dd>\n</dl>\n</section>\n";
  }

  std::string Expected() const {
    if (comparison_.rejection <= 0) return "";
    return EscapeHtml(fmt::format(
        " It is the expected step at q = {}: the timelines show one version rejected and replayed.",
        comparison_.rejection));
  }

  std::string Scenario() const {
    std::string out =
        "<section id=\"scenario\" aria-labelledby=\"scenario-title\">\n"
        "<h2 id=\"scenario-title\">The scenario</h2>\n";
    if (!input_.scenario_file.empty()) {
      out += "<p class=\"file\">" + EscapeHtml(input_.scenario_file) + "</p>\n";
    }
    if (input_.scenario_text.empty()) return out + "<p>Its text was not kept.</p>\n</section>\n";
    return out + "<pre tabindex=\"0\"><code>" + EscapeHtml(input_.scenario_text) +
           "</code></pre>\n</section>\n";
  }

  std::string Provenance() const {
    std::string out =
        "<section id=\"provenance\" aria-labelledby=\"provenance-title\">\n"
        "<h2 id=\"provenance-title\">Where the numbers come from</h2>\n";
    if (input_.provenance.empty()) {
      return out + "<p>From the scenario above; nothing else was said.</p>\n</section>\n";
    }
    out += "<dl class=\"terms\">\n";
    for (const ProvenanceLine& line : input_.provenance) {
      out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", EscapeHtml(line.label), EscapeHtml(line.text));
    }
    return out + "</dl>\n</section>\n";
  }

  static std::string Help() {
    struct Key {
      const char* keys;
      const char* what;
    };
    constexpr Key kKeys[] = {
        {"<kbd>Tab</kbd>", "next schedule, button or link"},
        {"<kbd>+</kbd> <kbd>−</kbd>", "zoom in and out"},
        {"<kbd>←</kbd> <kbd>→</kbd>", "move along the time axis; with Shift a whole screen"},
        {"<kbd>Home</kbd> <kbd>0</kbd>", "everything there is"},
        {"<kbd>↑</kbd> <kbd>↓</kbd>", "choose a rank: its ops are read out, its memory is drawn"},
        {"<kbd>,</kbd> <kbd>.</kbd>", "the op before and after, with times, wait and memory"},
        {"<kbd>Esc</kbd>", "put the op away"},
        {"<kbd>T</kbd>", "light, dark, or as the system has it"},
        {"<kbd>?</kbd>", "this list"},
    };
    std::string out =
        "<dialog id=\"help\" aria-labelledby=\"help-title\">\n<h2 id=\"help-title\">Keys and "
        "mouse</h2>\n<dl class=\"keys\">\n";
    for (const Key& key : kKeys) out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", key.keys, key.what);
    return out +
           "</dl>\n<p>All but the last two work while a timeline has the focus: click it, or reach "
           "it with Tab. Drag to move. Double-click to zoom in. The wheel zooms while a timeline "
           "has the focus, and with Ctrl always.</p>\n"
           "<button type=\"button\" id=\"help-close\">Close</button>\n</dialog>\n"
           "<div id=\"tip\" role=\"tooltip\" hidden></div>\n"
           "<div id=\"spoken\" class=\"unseen\" aria-live=\"polite\"></div>\n";
  }

  std::string Data() const {
    Json data;
    data["scenario"] = comparison_.scenario;
    data["ranks"] = comparison_.ranks;
    data["micro_batches"] = comparison_.micro_batches;
    data["memory_limit_bytes"] =
        comparison_.memory_limit ? Json(*comparison_.memory_limit) : Json(nullptr);
    data["stall_categories"] = NamesOf<StallCategory>(kNumStallCategories);
    data["memory_categories"] = NamesOf<MemoryCategory>(kNumMemoryCategories);
    data["waterfall_parts"] = NamesOf<WaterfallPart>(kNumWaterfallParts);
    data["runs"] = Json::array();
    for (size_t i = 0; i < input_.runs.size(); ++i) {
      data["runs"].push_back(DataOf(comparison_.results[i], input_.runs[i]));
    }
    return EscapeJsonForScript(data.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  Json DataOf(const Result& result, const HtmlRun& run) const {
    Json json;
    json["schedule"] = result.schedule;
    json["advised"] = result.summary && result.schedule == advice_.schedule;
    json["placement"] = result.placement;
    json["valid"] = result.valid;
    json["fits"] = result.fits;
    json["reason"] = OneParagraph(result.reason);
    json["ops"] = run.ops;
    if (!result.summary) return json;
    const Summary& s = *result.summary;
    json["step_ns"] = s.step;
    json["rejection"] = result.rejection ? Json(result.rejection->probability) : Json(nullptr);
    json["makespan_ns"] = s.makespan;
    json["bubble_rate"] = s.bubble_rate;
    json["bubble_fraction"] = s.bubble_fraction;
    json["peak_bytes"] = s.peak_bytes;
    json["fullest_rank"] = s.fullest_rank();
    json["busy_ns"] = s.stalls.busy;
    json["stalls_ns"] = s.stalls.stalls;  // by rank, by category
    json["waterfall_ns"] = run.waterfall ? Json(run.waterfall->parts) : Json(nullptr);
    json["packed"] = run.packed.empty() ? Json(nullptr) : Json(Base64(run.packed));
    return json;
  }

  const HtmlReportInput& input_;
  const Comparison& comparison_;
  const Advice advice_;
};

}  // namespace

std::string HtmlReport(const HtmlReportInput& input) { return Page(input).ToString(); }

}  // namespace spiritlevel
