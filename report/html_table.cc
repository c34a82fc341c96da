#include "report/html_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "report/figures.h"
#include "report/html_text.h"
#include "report/table.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

class Table {
 public:
  Table(const Comparison& comparison, const std::string& advised)
      : comparison_(comparison),
        advised_(advised),
        steps_(Scale::ForTimes(Largest([](const Summary& s) { return s.step; }))),
        peaks_(Scale::ForMemory(Largest(PeakBytes))),
        sent_(Scale::ForMemory(Largest([](const Summary& s) { return s.pp_bytes; }))) {
    for (int i = 0; i < kNumStallCategories; ++i) {
      const auto category = static_cast<StallCategory>(i);
      if (OccursAnywhere(category)) stalls_.push_back(category);
    }
  }

  std::string ToString() {
    std::string rows;
    for (const Result& result : comparison_.results) rows += Row(result);
    return "<table class=\"results\">\n<caption>Every schedule on this scenario. Step, speed-up "
           "and bubbles are defined below.</caption>\n" +
           Header() + "<tbody>\n" + rows + "</tbody>\n</table>\n" + Notes();
  }

 private:
  template <class ValueOf>
  int64_t Largest(ValueOf value_of) const {
    int64_t largest = 0;
    for (const Result& r : comparison_.results) {
      if (r.summary) largest = std::max<int64_t>(largest, value_of(*r.summary));
    }
    return largest;
  }

  bool OccursAnywhere(StallCategory category) const {
    return Largest([=](const Summary& s) { return SumOfStalls(s, category); }) > 0;
  }

  static std::string Group(std::string_view name, size_t columns) {
    return fmt::format("<th scope=\"colgroup\" colspan=\"{}\">{}</th>", columns, name);
  }
  static std::string Column(std::string_view name) {
    return fmt::format("<th scope=\"col\">{}</th>", name);
  }

  std::string Header() const {
    std::string stalls;
    for (const StallCategory c : stalls_) {
      stalls += fmt::format("<th scope=\"col\"><abbr title=\"{}\">{}</abbr></th>", Words(c),
                            ShortName(c));
    }
    std::string groups = "<thead>\n<tr><th scope=\"col\" rowspan=\"2\">schedule</th>";
    groups += Group("time", 2) + Group("bubble, %", 2);
    groups += Group("gap", 1);
    if (!stalls_.empty()) groups += Group("stalls, % of ranks × makespan", stalls_.size());
    groups += Group("peak memory", 2) + Group("waiting for", 2) + Group("traffic", 1);
    groups += "<th scope=\"col\" rowspan=\"2\">fits</th></tr>\n<tr>";
    return groups + Column("step, " + steps_.unit()) + Column("speed-up") + Column("rate") +
           Column("fraction") + Column("%") + stalls + Column(peaks_.unit()) + Column("rank") +
           Column("B") + Column("W") + Column("sent, " + sent_.unit()) + "</tr>\n</thead>\n";
  }

  size_t num_columns() const { return 12 + stalls_.size(); }

  std::string Row(const Result& result) {
    const bool advised = result.summary && !advised_.empty() && result.schedule == advised_;
    std::string row = fmt::format("<tr{} data-schedule=\"{}\"><th scope=\"row\">{}{}</th>",
                                  advised ? " class=\"advised\"" : "", EscapeHtml(result.schedule),
                                  EscapeHtml(result.schedule),
                                  advised ? " <span class=\"badge good\">advised</span>" : "");
    if (!result.summary) {
      return row + fmt::format("<td class=\"reason\" colspan=\"{}\">cannot run: {}</td></tr>\n",
                               num_columns() - 1, ReasonOrMark(result));
    }
    return row + Numbers(result, *result.summary) + "</tr>\n";
  }

  template <class Value>
  static std::string Cell(std::string_view key, Value value, std::string_view shown) {
    return fmt::format("<td data-key=\"{}\" data-value=\"{}\">{}</td>", key, value, shown);
  }

  std::string Numbers(const Result& result, const Summary& s) {
    const std::optional<double> speed_up = SpeedUp(result, comparison_);
    std::string cells = Cell("step_ns", s.step, steps_.Number(s.step));
    cells += speed_up ? Cell("speedup_over_1f1b", *speed_up, fmt::format("{:.2f}×", *speed_up))
                      : "<td>–</td>";
    cells += Cell("bubble_rate", s.bubble_rate, PercentNumber(s.bubble_rate));
    cells += Cell("bubble_fraction", s.bubble_fraction, PercentNumber(s.bubble_fraction));
    cells += Gap(result);
    for (const StallCategory c : stalls_) {
      cells += Cell(fmt::format("stalls_ns.{}", Name(c)), SumOfStalls(s, c),
                    PercentNumber(StallShare(s, c)));
    }
    cells += Cell("peak_bytes", PeakBytes(s), peaks_.Number(PeakBytes(s)));
    cells += Cell("fullest_rank", s.fullest_rank(), std::to_string(s.fullest_rank()));
    cells += Cell("peak_waiting_b", s.peak_waiting_b, std::to_string(s.peak_waiting_b));
    cells += Cell("peak_waiting_w", s.peak_waiting_w, std::to_string(s.peak_waiting_w));
    cells += Cell("pp_bytes", s.pp_bytes, sent_.Number(s.pp_bytes));
    const std::string_view fits = !result.valid ? "illegal" : result.fits ? "yes" : "no";
    const std::string_view kind = result.valid && result.fits ? "good" : "bad";
    return cells + fmt::format("<td class=\"{}\">{}{}</td>", kind, fits, Mark(result.reason));
  }

  std::string Gap(const Result& result) {
    if (!result.certificate) return "<td>–" + Mark(result.certificate_note) + "</td>";
    const Certificate& c = *result.certificate;
    return Cell(
        "gap", c.gap,
        GapNumber(c) + (c.proved_optimal ? " <span class=\"badge good\">optimal</span>" : ""));
  }

  // Of a row that cannot run; a long one that several rows share is a footnote.
  std::string ReasonOrMark(const Result& result) {
    constexpr size_t kLong = 60;
    const auto same =
        std::count_if(comparison_.results.begin(), comparison_.results.end(),
                      [&](const Result& r) { return !r.summary && r.reason == result.reason; });
    if (same < 2 || result.reason.size() < kLong) return EscapeHtml(OneParagraph(result.reason));
    return "see" + Mark(result.reason);
  }

  // Of what is to be known about a row, each text once.
  std::string Mark(const std::string& reason) {
    if (reason.empty()) return "";
    const std::string text = OneParagraph(reason);
    const auto known = std::find(notes_.begin(), notes_.end(), text);
    const auto number = known - notes_.begin() + 1;
    if (known == notes_.end()) notes_.push_back(text);
    return fmt::format("<sup><a href=\"#note-{0}\">{0}</a></sup>", number);
  }

  std::string Notes() const {
    if (notes_.empty()) return "";
    std::string out = "<ol class=\"notes\">\n";
    for (size_t i = 0; i < notes_.size(); ++i) {
      out += fmt::format("<li id=\"note-{}\">{}</li>\n", i + 1, EscapeHtml(notes_[i]));
    }
    return out + "</ol>\n";
  }

  const Comparison& comparison_;
  const std::string& advised_;
  const Scale steps_;
  const Scale peaks_;
  const Scale sent_;
  std::vector<StallCategory> stalls_;
  std::vector<std::string> notes_;
};

}  // namespace

std::string HtmlTable(const Comparison& comparison, const std::string& advised) {
  return Table(comparison, advised).ToString();
}

}  // namespace spiritlevel
