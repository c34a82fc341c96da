#include "report/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "report/certificate_json.h"
#include "report/grid.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

using Json = nlohmann::ordered_json;

double Log(TimeNs t) { return std::log(static_cast<double>(std::max<TimeNs>(1, t))); }

std::string Less(TimeNs before, TimeNs after) {
  if (before == after || before == 0) return "nothing";
  return fmt::format("{:.2f} %",
                     100 * static_cast<double>(before - after) / static_cast<double>(before));
}

// A grid of characters: time up, memory to the right.
class Plot {
 public:
  Plot(const Frontier& frontier, int width)
      : frontier_(frontier), columns_(std::clamp(width - kMargin - 2, 20, 120)) {
    left_ = frontier.points.front().limit;
    right_ = frontier.points.back().limit;
    low_ = frontier.points.back().lower_bound();
    high_ = frontier.points.front().value();
    for (const FrontierSchedule& s : frontier.schedules) {
      if (s.limit > right_) continue;
      high_ = std::max(high_, s.value);
      low_ = std::min(low_, s.value);
    }
    low_ = std::max<TimeNs>(1, low_);
    rows_.assign(kRows, std::string(static_cast<size_t>(columns_), ' '));
  }

  std::string ToString() {
    if (right_ == left_) return "";
    for (int column = 0; column < columns_; ++column) {
      const Bytes limit = LimitAt(column);
      if (const TimeNs bound = frontier_.BoundAt(limit); bound > 0) Put(column, bound, '.');
      if (const FrontierPoint* point = frontier_.At(limit)) Put(column, point->value(), '-');
    }
    for (const FrontierPoint& p : frontier_.points) Put(ColumnOf(p.limit), p.value(), '*');
    const std::string legend = MarkSchedules();
    std::string out;
    for (size_t row = 0; row < rows_.size(); ++row) {
      const bool labelled = row % 4 == 0 || row + 1 == rows_.size();
      out += PadLeft(labelled ? FormatTime(TimeAt(static_cast<int>(row))) : "", kMargin) + " |" +
             rows_[row].substr(0, rows_[row].find_last_not_of(' ') + 1) + '\n';
    }
    const std::string left = FormatMemory(left_);
    const std::string right = FormatMemory(right_);
    out += std::string(kMargin + 1, ' ') + '+' + std::string(static_cast<size_t>(columns_), '-');
    out += '\n' + std::string(kMargin + 2, ' ') + left +
           PadLeft(right, std::max<size_t>(right.size() + 1,
                                           static_cast<size_t>(columns_) - left.size())) +
           "\n\n";
    return out + Wrap(legend, 0, static_cast<size_t>(columns_ + kMargin + 2)) + '\n';
  }

 private:
  static constexpr int kMargin = 9;
  static constexpr int kRows = 17;

  // Capital letters for what may lie below the dots. Gives the legend.
  std::string MarkSchedules() {
    std::string covered;
    std::string others;
    char letter = 'a';
    for (const FrontierSchedule& s : frontier_.schedules) {
      if (s.limit > right_ || letter > 'z') continue;
      const char mark = static_cast<char>(s.covered() ? letter : letter - 'a' + 'A');
      std::string& names = s.covered() ? covered : others;
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", mark, s.name);
      Put(ColumnOf(s.limit), s.value, mark);
      ++letter;
    }
    std::string legend =
        fmt::format("* best found, . no order of {} can be below", LookedAt(frontier_));
    if (!covered.empty()) legend += "; " + covered;
    if (!others.empty()) legend += "; of other placements, or of F&B pairs: " + others;
    return legend;
  }

  Bytes LimitAt(int column) const {
    return left_ + static_cast<Bytes>(static_cast<double>(right_ - left_) * column /
                                      std::max(1, columns_ - 1));
  }
  int ColumnOf(Bytes limit) const {
    const double share = static_cast<double>(limit - left_) / static_cast<double>(right_ - left_);
    return static_cast<int>(std::lround(share * (columns_ - 1)));
  }
  TimeNs TimeAt(int row) const {
    const double share = static_cast<double>(row) / (kRows - 1);
    return static_cast<TimeNs>(std::exp(Log(high_) + share * (Log(low_) - Log(high_))));
  }
  void Put(int column, TimeNs time, char mark) {
    if (column < 0 || column >= columns_ || time <= 0) return;
    const double span = Log(high_) - Log(low_);
    const double share = span > 0 ? (Log(high_) - Log(time)) / span : 0;
    const auto row = static_cast<size_t>(
        std::clamp(std::lround(share * (kRows - 1)), 0L, static_cast<long>(kRows - 1)));
    rows_[row][static_cast<size_t>(column)] = mark;
  }

  const Frontier& frontier_;
  int columns_;
  Bytes left_ = 0;
  Bytes right_ = 0;
  TimeNs low_ = 0;
  TimeNs high_ = 0;
  std::vector<std::string> rows_;
};

std::string PointsTable(const Frontier& frontier) {
  Grid::Column limit{.name = "limit", .cells = {}};
  Grid::Column value{.name = frontier.objective, .cells = {}};
  Grid::Column bound{.name = "bound", .cells = {}};
  Grid::Column gap{.name = "gap %", .cells = {}};
  Grid::Column proved{.name = "proved", .left = true, .cells = {}};
  Grid::Column by{.name = "by", .left = true, .cells = {}};
  Grid::Column placement{.name = "placement", .left = true, .cells = {}};
  for (const FrontierPoint& p : frontier.points) {
    limit.cells.push_back(FormatMemory(p.limit));
    value.cells.push_back(FormatTime(p.value()));
    bound.cells.push_back(FormatTime(p.lower_bound()));
    gap.cells.push_back(fmt::format("{:.2f}", 100 * p.certificate.gap));
    proved.cells.push_back(p.certificate.proved_optimal ? "yes" : "");
    by.cells.push_back(p.found_by);
    placement.cells.push_back(p.placement);
  }
  Grid grid;
  for (Grid::Column* column : {&limit, &value, &bound, &gap, &proved, &by, &placement}) {
    grid.Add(std::move(*column));
  }
  return grid.ToString();
}

// Nothing where there is no curve yet at the schedule's limit.
std::optional<double> AboveBest(const Frontier& frontier, const FrontierSchedule& schedule) {
  const FrontierPoint* best = frontier.At(schedule.limit);
  if (best == nullptr || best->value() == 0) return {};
  return 100 * (static_cast<double>(schedule.value) / static_cast<double>(best->value()) - 1);
}

std::string SchedulesTable(const Frontier& frontier, int width) {
  if (frontier.schedules.empty()) return "";
  Grid::Column name{.name = "schedule", .left = true, .cells = {}};
  Grid::Column placement{.name = "placement", .left = true, .cells = {}};
  Grid::Column limit{.name = "needs", .cells = {}};
  Grid::Column value{.name = frontier.objective, .cells = {}};
  Grid::Column above{.name = "above best %", .cells = {}};
  bool any_below = false;
  for (const FrontierSchedule& s : frontier.schedules) {
    name.cells.push_back(s.name);
    limit.cells.push_back(FormatMemory(s.limit));
    value.cells.push_back(FormatTime(s.value));
    placement.cells.push_back(s.placement);
    const std::optional<double> percent = AboveBest(frontier, s);
    above.cells.push_back(percent ? fmt::format("{:.2f}", *percent) : "");
    any_below |= percent && *percent < 0;
  }
  Grid grid;
  for (Grid::Column* column : {&name, &limit, &value, &above, &placement}) {
    grid.Add(std::move(*column));
  }
  std::string out = grid.ToString() + '\n';
  if (any_below) {
    out += Wrap(fmt::format("Negative: not of {}, or of F&B pairs; curve and bounds are not about "
                            "those.",
                            LookedAt(frontier)),
                0, static_cast<size_t>(width)) +
           "\n\n";
  }
  return out;
}

// The fastest of what curve and bounds are not about, if it is below `value`.
const FrontierSchedule* FasterElsewhere(const Frontier& frontier, FrontierCover cover, Bytes limit,
                                        TimeNs value) {
  const FrontierSchedule* fastest = nullptr;
  for (const FrontierSchedule& s : frontier.schedules) {
    if (s.cover != cover || s.limit > limit || s.value >= value) continue;
    if (fastest == nullptr || s.value < fastest->value) fastest = &s;
  }
  return fastest;
}

// What the rest of the answer cannot speak of.
std::string Elsewhere(const Frontier& frontier, Bytes limit, TimeNs value) {
  const auto says = [](const FrontierSchedule& s) {
    return fmt::format("{} ({}) takes {} in {}", s.name, s.placement, FormatTime(s.value),
                       FormatMemory(s.limit));
  };
  std::string text;
  const FrontierSchedule* other =
      FasterElsewhere(frontier, FrontierCover::kOtherPlacement, limit, value);
  if (frontier.placement != "best") {
    text = fmt::format(" Other placements may do better{}; --placement best looks at them, too.",
                       other == nullptr ? "" : ": " + says(*other));
  } else if (other != nullptr) {
    text = fmt::format(" A placement that is not looked at does better: {}.", says(*other));
  }
  if (const FrontierSchedule* pairs =
          FasterElsewhere(frontier, FrontierCover::kPairs, limit, value)) {
    text += fmt::format(" {}, with F&B pairs, which no search makes.", says(*pairs));
  }
  return text;
}

}  // namespace

const FrontierPoint* Frontier::At(Bytes limit) const {
  const FrontierPoint* best = nullptr;
  for (const FrontierPoint& p : points) {
    if (p.limit <= limit) best = &p;
  }
  return best;
}

TimeNs Frontier::BoundAt(Bytes limit) const {
  if (points.empty() || limit < points.front().limit) return 0;
  // What no order under a larger limit can do, none under this one can.
  for (const FrontierBound& bound : bounds) {
    if (bound.limit >= limit) return bound.value;
  }
  return bound_beyond;
}

std::string LookedAt(const Frontier& frontier) {
  std::string text;
  for (size_t i = 0; i < frontier.placements.size(); ++i) {
    const bool last = i + 1 == frontier.placements.size();
    text += (i == 0 ? "" : last ? " or " : ", ") + frontier.placements[i];
  }
  return text + " placement";
}

std::string FrontierAnswer(const Frontier& frontier) {
  const FrontierPoint& first = frontier.points.front();
  const FrontierPoint& last = frontier.points.back();
  const bool at_home = frontier.home && *frontier.home >= first.limit;
  const Bytes from = at_home ? *frontier.home : first.limit;
  const FrontierPoint& now = *frontier.At(from);
  const FrontierPoint& then = *frontier.At(from + frontier.more);
  std::string text = frontier.home_refusal.empty() ? "" : frontier.home_refusal + ". ";
  text +=
      fmt::format("With {}: at {}{}, the best is {}", LookedAt(frontier), FormatMemory(from),
                  at_home ? "" : ", the least that any order fits into", FormatTime(now.value()));
  if (now.value() == frontier.bound_beyond) {
    if (last.limit < from) text += fmt::format("; {} are enough for it", FormatMemory(last.limit));
    return text + ", and no memory buys more." + Elsewhere(frontier, from, now.value());
  }
  text +=
      fmt::format(". {} more buy {}", FormatMemory(frontier.more), Less(now.value(), then.value()));
  text += now.value() == then.value() ? "." : fmt::format(": {}.", FormatTime(then.value()));
  const TimeNs bound = frontier.BoundAt(from + frontier.more);
  if (bound < then.value() && now.value() > 0) {
    text += fmt::format(" At most, they could buy {}.", Less(now.value(), bound));
  }
  text += fmt::format(
      " Beyond {} {}: {}.", FormatMemory(last.limit),
      last.value() == frontier.bound_beyond ? "no memory buys more" : "nothing better was found",
      FormatTime(last.value()));
  return text + Elsewhere(frontier, from, now.value());
}

std::string FrontierText(const Frontier& frontier, int width) {
  std::string out = fmt::format("{}: {} against memory, {} ranks, {} micro-batches, tail {}\n\n",
                                frontier.scenario, frontier.objective, frontier.ranks,
                                frontier.micro_batches, frontier.tail);
  if (frontier.own_ratio)
    out += "limits are those of the rank that has most; all grow together\n\n";
  out += PointsTable(frontier) + '\n' + SchedulesTable(frontier, width);
  out += Plot(frontier, width).ToString();
  out += '\n' + Wrap(FrontierAnswer(frontier), 0, static_cast<size_t>(width)) + '\n';
  if (frontier.interrupted) out += "Interrupted: more time may find better.\n";
  return out;
}

std::string FrontierJson(const Frontier& frontier) {
  Json json;
  json["scenario"] = frontier.scenario;
  json["ranks"] = frontier.ranks;
  json["micro_batches"] = frontier.micro_batches;
  json["objective"] = frontier.objective;
  json["tail"] = frontier.tail;
  json["placement"] = frontier.placement;
  json["placements"] = frontier.placements;
  json["memory_limit_bytes"] = frontier.home ? Json(*frontier.home) : Json(nullptr);
  json["memory_limit_refusal"] =
      frontier.home_refusal.empty() ? Json(nullptr) : Json(frontier.home_refusal);
  json["more_bytes"] = frontier.more;
  json["points"] = Json::array();
  for (const FrontierPoint& p : frontier.points) {
    Json point = {{"limit_bytes", p.limit}, {"limits_bytes", p.limits}, {"value_ns", p.value()}};
    AddCertificate(p.certificate, &point);
    point["found_by"] = p.found_by;
    point["placement"] = p.placement;
    point["stages_per_rank"] = p.stages_per_rank;
    json["points"].push_back(std::move(point));
  }
  json["bounds"] = Json::array();
  for (const FrontierBound& b : frontier.bounds) {
    json["bounds"].push_back({{"limit_bytes", b.limit}, {"lower_bound_ns", b.value}});
  }
  json["lower_bound_beyond_ns"] = frontier.bound_beyond;
  json["schedules"] = Json::array();
  for (const FrontierSchedule& s : frontier.schedules) {
    json["schedules"].push_back({{"schedule", s.name},
                                 {"limit_bytes", s.limit},
                                 {"value_ns", s.value},
                                 {"placement", s.placement},
                                 {"covered", s.covered()}});
  }
  json["answer"] = FrontierAnswer(frontier);
  json["passed_over"] = frontier.passed_over;
  json["interrupted"] = frontier.interrupted;
  json["seconds"] = frontier.seconds;
  json["evaluations"] = frontier.evaluations;
  json["seed"] = frontier.seed;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace spiritlevel
