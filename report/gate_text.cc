#include "report/gate_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/units.h"
#include "report/html_text.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

std::string_view Words(GateMetric metric) {
  constexpr std::array<std::string_view, kNumGateMetrics> kWords = {
      "makespan", "step", "bubble rate", "peak memory", "exposed comm.", "certificate gap"};
  return kWords[static_cast<size_t>(metric)];
}

std::string Value(GateMetric metric, const std::optional<int64_t>& value) {
  if (!value) return "unknown";
  if (IsRate(metric)) {
    return fmt::format("{:.2f} %", 100 * static_cast<double>(*value) / kGateRateUnit);
  }
  return metric == GateMetric::kPeakBytes ? FormatMemory(*value) : FormatTime(*value);
}

// "+1.2 % (+15.7 ms)": the second says what the first, rounded, may not.
std::string Growth(const GateChange& change) {
  if (!change.before || !change.after) return "";
  const int64_t more = *change.after - *change.before;
  const std::string_view sign = more < 0 ? "-" : "+";
  if (IsRate(change.metric)) return fmt::format("{:+.4f} points", 100 * *change.growth());
  const std::string amount = fmt::format("{}{}", sign, Value(change.metric, std::abs(more)));
  if (!change.growth()) return amount;
  return fmt::format("{:+.2f} % ({})", 100 * *change.growth(), amount);
}

// One thing that changed.
struct Line {
  const GateRow* row = nullptr;
  const GateChange* change = nullptr;  // none: the row's note
  GateState state = GateState::kSame;

  // What has no number weighs most.
  double weight() const {
    constexpr double kMost = 1e300;
    return change == nullptr ? kMost : change->growth().value_or(kMost);
  }
};

GateState StateOfNote(const GateRow& row) {
  return row.note.starts_with("runs") || row.note.starts_with("fits") ? GateState::kBetter
                                                                      : row.state;
}

std::vector<Line> LinesOf(const GateVerdict& verdict) {
  std::vector<Line> lines;
  for (const GateRow& row : verdict.rows) {
    if (!row.note.empty()) lines.push_back({&row, nullptr, StateOfNote(row)});
    for (const GateChange& change : row.changes) lines.push_back({&row, &change, change.state});
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    if (a.state != b.state) return a.state > b.state;
    return a.weight() > b.weight();
  });
  return lines;
}

std::string Plural(int count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

// "14 schedules on 2 scenarios"; where these have different ones, "27 results on 2 scenarios".
std::string Played(const GateVerdict& verdict) {
  std::map<std::string, int> rows_of;
  for (const GateRow& row : verdict.rows) ++rows_of[row.scenario];
  const int first = rows_of.empty() ? 0 : rows_of.begin()->second;
  if (rows_of.size() < 2) return Plural(first, "schedule");
  const bool alike = std::all_of(rows_of.begin(), rows_of.end(),
                                 [&](const auto& of) { return of.second == first; });
  const std::string scenarios = Plural(static_cast<int>(rows_of.size()), "scenario");
  return alike ? fmt::format("{} on {}", Plural(first, "schedule"), scenarios)
               : fmt::format("{} on {}", Plural(static_cast<int>(verdict.rows.size()), "result"),
                             scenarios);
}

// "; only bubble rate is watched"
std::string Watched(const GateVerdict& verdict) {
  if (verdict.watched.empty()) return "";
  std::vector<std::string_view> words;
  for (const GateMetric metric : verdict.watched) words.push_back(Words(metric));
  return fmt::format("; only {} {} watched", fmt::join(words, ", "),
                     words.size() == 1 ? "is" : "are");
}

// "14 schedules on 2 scenarios: 1 worse, 27 as before"
std::string Tally(const GateVerdict& verdict) {
  std::string text;
  const auto add = [&](GateState state, std::string_view words) {
    const int count = verdict.Count(state);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, words);
  };
  add(GateState::kWorse, "worse");
  add(GateState::kTolerated, "worse within tolerance");
  add(GateState::kBetter, "better");
  add(GateState::kNew, "new");
  add(GateState::kSame, "as before");
  return fmt::format("{}: {}{}", Played(verdict), text, Watched(verdict));
}

std::string_view Advice(const GateVerdict& verdict) {
  if (!verdict.passes()) {
    return "Mend what is worse; or, if it is meant to be so, write a new baseline with --update.";
  }
  const bool better = verdict.Count(GateState::kBetter) > 0;
  if (better || verdict.Count(GateState::kNew) > 0) {
    return better ? "Write a new baseline with --update, so that what was won is kept."
                  : "Write a new baseline with --update, so that what is new is kept.";
  }
  return "";
}

std::string InWords(const Line& line) {
  if (line.change == nullptr) return line.row->note;
  const GateChange& c = *line.change;
  const std::string growth = Growth(c);
  return fmt::format("{}: {} -> {}{}{}", Words(c.metric), Value(c.metric, c.before),
                     Value(c.metric, c.after), growth.empty() ? "" : "  ", growth);
}

// A line break would end a table, and "|" a cell.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : EscapeHtml(text)) {
    switch (c) {
      case '\n':
        out += ' ';
        break;
      case '|':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
      case '\\':
      case '~':
      case '@':
      case '!':
      case '#':
        out += fmt::format("&#{};", static_cast<int>(c));
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string_view Mark(GateState state) {
  switch (state) {
    case GateState::kWorse:
      return "❌ worse";
    case GateState::kTolerated:
      return "⚠️ within tolerance";
    case GateState::kBetter:
      return "✅ better";
    case GateState::kNew:
      return "🆕 new";
    case GateState::kSame:
      break;
  }
  return "same";
}

Json NumberOf(GateMetric metric, const std::optional<int64_t>& value) {
  if (!value) return nullptr;
  if (!IsRate(metric)) return *value;
  return static_cast<double>(*value) / kGateRateUnit;
}

}  // namespace

std::string GateText(const GateVerdict& verdict) {
  std::string text;
  const GateRow* last = nullptr;
  for (const Line& line : LinesOf(verdict)) {
    if (last == nullptr || last->scenario != line.row->scenario) {
      text += line.row->scenario + "\n";
    }
    last = line.row;
    text +=
        fmt::format("  {:<10} {:<16} {}\n", Name(line.state), line.row->schedule, InWords(line));
  }
  if (!text.empty()) text += '\n';
  text += fmt::format("{}: {}\n", verdict.passes() ? "passed" : "FAILED", Tally(verdict));
  const std::string_view advice = Advice(verdict);
  return advice.empty() ? text : text + std::string(advice) + "\n";
}

std::string GateMarkdown(const GateVerdict& verdict) {
  const std::vector<Line> lines = LinesOf(verdict);
  if (lines.empty()) {
    return fmt::format("**Spiritlevel gate passed**: nothing changed on {}{}.\n", Played(verdict),
                       Watched(verdict));
  }
  std::string out = fmt::format("### Spiritlevel gate {}\n\n{}.\n\n",
                                verdict.passes() ? "passed" : "failed", Tally(verdict));
  out +=
      "| | scenario | schedule | metric | baseline | now | change |\n"
      "|---|---|---|---|---:|---:|---:|\n";
  for (const Line& line : lines) {
    out += fmt::format("| {} | {} | {} |", Mark(line.state), Cell(line.row->scenario),
                       Cell(line.row->schedule));
    if (line.change == nullptr) {
      out += fmt::format(" {} | | | |\n", Cell(line.row->note));
      continue;
    }
    const GateChange& c = *line.change;
    out += fmt::format(" {} | {} | {} | {} |\n", Words(c.metric), Value(c.metric, c.before),
                       Value(c.metric, c.after), Growth(c));
  }
  const std::string_view advice = Advice(verdict);
  return advice.empty() ? out : fmt::format("{}\n{}\n", out, advice);
}

std::string GateJUnit(const GateVerdict& verdict) {
  const auto attributes = fmt::format("name=\"spiritlevel gate\" tests=\"{}\" failures=\"{}\"",
                                      verdict.rows.size(), verdict.Count(GateState::kWorse));
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n<testsuite {} errors=\"0\">\n",
      attributes, attributes);
  const std::vector<Line> lines = LinesOf(verdict);
  for (const GateRow& row : verdict.rows) {
    std::string worse;
    std::string other;
    for (const Line& line : lines) {
      if (line.row != &row) continue;
      std::string& text = line.state == GateState::kWorse ? worse : other;
      text += fmt::format("{}: {}\n", Name(line.state), InWords(line));
    }
    out += fmt::format("<testcase classname=\"{}\" name=\"{}\">", EscapeHtml(row.scenario),
                       EscapeHtml(row.schedule));
    if (row.state == GateState::kWorse) {
      const std::string first = worse.substr(0, worse.find('\n'));
      out += fmt::format("<failure type=\"worse\" message=\"{}\">{}</failure>", EscapeHtml(first),
                         EscapeHtml(worse));
    }
    if (!other.empty()) out += fmt::format("<system-out>{}</system-out>", EscapeHtml(other));
    out += "</testcase>\n";
  }
  return out + "</testsuite>\n</testsuites>\n";
}

std::string GateJson(const GateVerdict& verdict, const GateRules& rules) {
  Json json;
  json["passes"] = verdict.passes();
  for (int i = 0; i < kNumGateMetrics; ++i) {
    const auto metric = static_cast<GateMetric>(i);
    if (!rules.watches(metric)) continue;
    json["tolerance_percent"][std::string(Name(metric))] = rules.percent(metric);
  }
  json["results"] = Json::array();
  for (const GateRow& row : verdict.rows) {
    Json one;
    one["scenario"] = row.scenario;
    one["schedule"] = row.schedule;
    one["state"] = Name(row.state);
    one["note"] = row.note;
    one["changes"] = Json::array();
    for (const GateChange& c : row.changes) {
      one["changes"].push_back({{"metric", Name(c.metric)},
                                {"state", Name(c.state)},
                                {"baseline", NumberOf(c.metric, c.before)},
                                {"now", NumberOf(c.metric, c.after)}});
    }
    json["results"].push_back(std::move(one));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace spiritlevel
