// The frontier as a page: a chart in SVG and the same numbers as tables. No script: what a point is
// stands in its title, and points can be reached with the keyboard.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "report/frontier.h"
#include "report/html_text.h"
#include "report/text.h"

namespace spiritlevel {
namespace {

// Okabe and Ito's colours, which differ for every kind of colour vision; shapes differ, too.
constexpr std::string_view kStyle = R"(
:root{--bg:#fff;--ink:#1b1f24;--soft:#59636e;--line:#d5dae0;--curve:#0072b2;--band:#56b4e9;
--mark:#d55e00;--proved:#009e73;--home:#8a5a00}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e8eaed;--soft:#a3acb7;--line:#363c44;
--curve:#56b4e9;--band:#0072b2;--mark:#e69f00;--proved:#35c79a;--home:#f0e442}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 4px}h2{font-size:1.1rem;margin:36px 0 8px}
.facts{color:var(--soft);margin:0 0 16px}.answer{font-size:1.1rem;max-width:62ch}.flag{white-space:nowrap}
figure{margin:20px 0;overflow-x:auto}svg{display:block;width:100%;min-width:640px;height:auto}
svg text{fill:var(--ink);font-size:13px;font-family:inherit}svg .tick{fill:var(--soft)}
g text{paint-order:stroke;stroke:var(--bg);stroke-width:3px;stroke-linejoin:round}
.grid{stroke:var(--line);stroke-width:1}.band{fill:var(--band);fill-opacity:.28}
.curve{fill:none;stroke:var(--curve);stroke-width:2.5}
.bound{fill:none;stroke:var(--soft);stroke-width:1.5;stroke-dasharray:4 3}
.point{fill:var(--bg);stroke:var(--curve);stroke-width:2.5}.point.proved{fill:var(--curve)}
.schedule{fill:var(--mark);stroke:var(--bg);stroke-width:1}
.schedule.other{fill:var(--bg);stroke:var(--mark);stroke-width:2}.leader{stroke:var(--soft);stroke-width:1}
.home{stroke:var(--home);stroke-width:1.5;stroke-dasharray:2 4}
[tabindex]:focus{outline:none}[tabindex]:focus .ring,[tabindex]:hover .ring{stroke:var(--ink)}
.ring{fill:transparent;stroke:transparent;stroke-width:2}
figcaption{color:var(--soft);font-size:.9rem}
.key{display:flex;flex-wrap:wrap;gap:4px 22px;padding:0;margin:8px 0 0;list-style:none}
.key svg{display:inline-block;width:26px;min-width:0;height:14px;vertical-align:-2px;margin-right:6px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:5px 14px 5px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--soft)}.l{text-align:left}
)";

struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;

  bool Meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Steps of 1, 2 or 5 times a power of ten (or, of bytes, of two), about `count` of them.
std::vector<double> Ticks(double low, double high, int count, double base) {
  const double rough = (high - low) / count;
  if (!(rough > 0)) return {low};
  double step = std::pow(base, std::floor(std::log(rough) / std::log(base)));
  if (base == 2) {
    while (step < rough) step *= 2;
  } else {
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (step < rough) step *= factor;
    }
  }
  std::vector<double> ticks;
  for (double at = std::ceil(low / step) * step; at <= high * (1 + 1e-12); at += step) {
    ticks.push_back(at);
  }
  return ticks;
}

std::string_view NotCovered(FrontierCover cover) {
  switch (cover) {
    case FrontierCover::kCovered:
      return "";
    case FrontierCover::kOtherPlacement:
      return ", which is not looked at here";
    case FrontierCover::kPairs:
      return ", with F&B pairs, which no search makes";
  }
  return "";
}

class Chart {
 public:
  explicit Chart(const Frontier& frontier) : frontier_(frontier) { Scale(); }

  std::string ToString() {
    std::string out = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"group\" aria-labelledby=\"chart-title\">"
        "<title id=\"chart-title\">{} against memory limit</title>\n",
        kWidth, kHeight, frontier_.objective);
    out += Axes() + Band() + Home() + Curves() + Schedules() + Points();
    return out + "</svg>\n";
  }

  int beyond() const { return beyond_; }

 private:
  static constexpr int kWidth = 1040;
  static constexpr int kHeight = 560;
  static constexpr double kLeft = 84;
  static constexpr double kRight = 1016;
  static constexpr double kTop = 20;
  static constexpr double kBottom = 500;

  void Scale() {
    const FrontierPoint& first = frontier_.points.front();
    const FrontierPoint& last = frontier_.points.back();
    const auto width = static_cast<double>(std::max<Bytes>(1, last.limit - first.limit));
    low_x_ = static_cast<double>(first.limit) - 0.03 * width;
    high_x_ = static_cast<double>(last.limit) + 0.08 * width;
    // Schedules that need more than twice what is useful would flatten the rest.
    for (const FrontierSchedule& s : frontier_.schedules) {
      const auto at = static_cast<double>(s.limit);
      if (at <= high_x_ + width) {
        high_x_ = std::max(high_x_, at + 0.06 * width);
      }
    }
    low_y_ = static_cast<double>(std::max<TimeNs>(1, last.lower_bound()));
    high_y_ = static_cast<double>(std::max<TimeNs>(1, first.value()));
    for (const FrontierSchedule& s : frontier_.schedules) {
      if (static_cast<double>(s.limit) > high_x_) {
        ++beyond_;
        continue;
      }
      high_y_ = std::max(high_y_, static_cast<double>(s.value));
      low_y_ = std::min(low_y_, static_cast<double>(std::max<TimeNs>(1, s.value)));
    }
    const double margin = std::max(1.01, std::pow(high_y_ / low_y_, 0.05));
    low_y_ /= margin;
    high_y_ *= margin;
  }

  double X(double limit) const {
    return kLeft + (kRight - kLeft) * (limit - low_x_) / (high_x_ - low_x_);
  }
  double X(Bytes limit) const { return X(static_cast<double>(limit)); }
  // By ratio: what ten percent are is as high everywhere.
  double Y(double time) const {
    return kBottom -
           (kBottom - kTop) * std::log(std::max(1.0, time) / low_y_) / std::log(high_y_ / low_y_);
  }
  double Y(TimeNs time) const { return Y(static_cast<double>(time)); }

  std::string Axes() const {
    std::string out;
    for (const double at : Ticks(low_x_, high_x_, 8, low_x_ > 1 << 20 ? 2 : 10)) {
      if (at < 0) continue;
      out += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} {1}V{2}\"/><text class=\"tick\" x=\"{0:.1f}\" "
          "y=\"{3}\" "
          "text-anchor=\"middle\">{4}</text>\n",
          X(at), kTop, kBottom, kBottom + 20, EscapeHtml(FormatMemory(std::llround(at))));
    }
    std::vector<double> times = Ticks(low_y_, high_y_, 8, 10);
    double last = kBottom + 100;
    for (const double at : times) {
      if (last - Y(at) < 22) continue;
      last = Y(at);
      out += fmt::format(
          "<path class=\"grid\" d=\"M{1} {0:.1f}H{2}\"/><text class=\"tick\" x=\"{3}\" "
          "y=\"{4:.1f}\" "
          "text-anchor=\"end\">{5}</text>\n",
          Y(at), kLeft, kRight, kLeft - 8, Y(at) + 4, FormatTime(std::llround(at)));
    }
    out += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">memory limit of a rank</text>"
        "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{} (log scale)"
        "</text>\n",
        (kLeft + kRight) / 2, kBottom + 46, (kTop + kBottom) / 2, frontier_.objective);
    return out;
  }

  // A value holds from its limit on.
  std::string CurvePath() const {
    std::string path;
    for (const FrontierPoint& p : frontier_.points) {
      path += path.empty() ? fmt::format("M{:.1f} {:.1f}", X(p.limit), Y(p.value()))
                           : fmt::format("H{:.1f}V{:.1f}", X(p.limit), Y(p.value()));
    }
    return path + fmt::format("H{}", kRight);
  }

  // A bound holds up to its limit, and for all before it.
  std::string BoundPath(bool back) const {
    std::vector<std::pair<double, double>> corners;
    double until = X(frontier_.points.front().limit);
    for (const FrontierBound& b : frontier_.bounds) {
      corners.emplace_back(until, Y(b.value));
      until = X(b.limit);
      corners.emplace_back(until, Y(b.value));
    }
    corners.emplace_back(until, Y(frontier_.bound_beyond));
    corners.emplace_back(kRight, Y(frontier_.bound_beyond));
    if (back) std::reverse(corners.begin(), corners.end());
    std::string path;
    for (const auto& [x, y] : corners) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() && !back ? 'M' : 'L', x, y);
    }
    return path;
  }

  std::string Band() const {
    return fmt::format("<path class=\"band\" d=\"{}{}Z\"/>\n", CurvePath(), BoundPath(true));
  }

  std::string Curves() const {
    return fmt::format("<path class=\"bound\" d=\"{}\"/>\n<path class=\"curve\" d=\"{}\"/>\n",
                       BoundPath(false), CurvePath());
  }

  std::string Home() {
    if (!frontier_.home) return "";
    const double x = X(*frontier_.home);
    if (x < kLeft || x > kRight) return "";
    const std::string label = FormatMemory(*frontier_.home) + " now";
    const bool flips = x > kRight - 110;
    taken_.push_back({flips ? x - 110 : x, kTop, flips ? x : x + 110, kTop + 18});
    return fmt::format(
        "<path class=\"home\" d=\"M{0:.1f} {1}V{2}\"/><text x=\"{3:.1f}\" y=\"{4}\" "
        "text-anchor=\"{5}\">{6}</text>\n",
        x, kTop, kBottom, flips ? x - 5 : x + 5, kTop + 12, flips ? "end" : "start",
        EscapeHtml(label));
  }

  std::string Points() const {
    std::string out;
    for (const FrontierPoint& p : frontier_.points) {
      const std::string title =
          fmt::format("{}: {} {}, {}; {}, {}", FormatMemory(p.limit), frontier_.objective,
                      FormatTime(p.value()),
                      p.certificate.proved_optimal
                          ? "proved optimal for " + LookedAt(frontier_)
                          : fmt::format("at most {:.2f} % above the best", 100 * p.certificate.gap),
                      p.placement, p.found_by);
      out += fmt::format(
          "<g tabindex=\"0\" role=\"img\" aria-label=\"{2}\"><title>{2}</title>"
          "<circle class=\"ring\" cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"10\"/>"
          "<circle class=\"point{3}\" cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"4.5\"/></g>\n",
          X(p.limit), Y(p.value()), EscapeHtml(title),
          p.certificate.proved_optimal ? " proved" : "");
    }
    return out;
  }

  // Labels lie where none lies yet, as near to their marks as can be.
  std::string Schedules() {
    std::vector<const FrontierSchedule*> shown;
    for (const FrontierSchedule& s : frontier_.schedules) {
      if (static_cast<double>(s.limit) > high_x_) continue;
      shown.push_back(&s);
      taken_.push_back({X(s.limit) - 7, Y(s.value) - 7, X(s.limit) + 7, Y(s.value) + 7});
    }
    // The curve, too: its points, and its steps.
    const std::vector<FrontierPoint>& points = frontier_.points;
    for (size_t i = 0; i < points.size(); ++i) {
      const double x = X(points[i].limit);
      const double y = Y(points[i].value());
      const bool last = i + 1 == points.size();
      const double end = last ? kRight : X(points[i + 1].limit);
      taken_.push_back({x - 6, y - 6, x + 6, y + 6});
      taken_.push_back({x, y - 1, end, y + 1});
      if (!last) taken_.push_back({end - 1, y, end + 1, Y(points[i + 1].value())});
    }
    std::string out;
    for (const FrontierSchedule* s : shown) out += Mark(*s);
    return out;
  }

  std::string Mark(const FrontierSchedule& s) {
    const double x = X(s.limit);
    const double y = Y(s.value);
    const std::string title =
        fmt::format("{}: needs {}, {} {}; {}{}", s.name, FormatMemory(s.limit), frontier_.objective,
                    FormatTime(s.value), s.placement, NotCovered(s.cover));
    const auto [label, leads] = PlaceFor(x, y, 7.4 * static_cast<double>(s.name.size()) + 4);
    std::string out;
    if (leads) {
      const double near_x = std::clamp(x, label.left, label.right);
      const double near_y = std::clamp(y, label.top, label.bottom);
      out += fmt::format("<path class=\"leader\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", x, y,
                         near_x, near_y);
    }
    return out + fmt::format(
                     "<g tabindex=\"0\" role=\"img\" aria-label=\"{2}\"><title>{2}</title>"
                     "<circle class=\"ring\" cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"11\"/>"
                     "<path class=\"schedule{6}\" d=\"M{0:.1f} {1:.1f}m0 -7l7 7l-7 7l-7 -7z\"/>"
                     "<text x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text></g>\n",
                     x, y, EscapeHtml(title), label.left + 2, label.bottom - 4, EscapeHtml(s.name),
                     s.covered() ? "" : " other");
  }

  std::pair<Box, bool> PlaceFor(double x, double y, double width) {
    constexpr double kHigh = 17;
    for (double away = 9; away < 240; away += 9) {
      const double tops[] = {y - kHigh / 2, y - away - kHigh, y + away};
      for (const double top : tops) {
        for (const double left : {x + away, x - away - width, x - width / 2}) {
          if (top == tops[0] && left == x - width / 2) continue;  // on the mark itself
          const Box box{left, top, left + width, top + kHigh};
          if (box.left < kLeft || box.right > kRight || box.top < kTop || box.bottom > kBottom) {
            continue;
          }
          const bool free = std::none_of(taken_.begin(), taken_.end(),
                                         [&](const Box& other) { return box.Meets(other); });
          if (!free) continue;
          taken_.push_back(box);
          return {box, away > 20};
        }
      }
    }
    return {{x + 9, y - kHigh / 2, x + 9 + width, y + kHigh / 2}, false};
  }

  const Frontier& frontier_;
  double low_x_ = 0;
  double high_x_ = 1;
  double low_y_ = 1;
  double high_y_ = 2;
  int beyond_ = 0;
  std::vector<Box> taken_;
};

// A flag of ours is not broken at its hyphens, nor a number before its sign.
std::string AnswerMarkup(const Frontier& frontier) {
  std::string text = EscapeHtml(FrontierAnswer(frontier));
  for (size_t at; (at = text.find(" %")) != std::string::npos;) text.replace(at, 1, "&nbsp;");
  for (const std::string_view flag : {"--placement best", "--memory-limit"}) {
    const size_t at = text.find(flag);
    if (at == std::string::npos) continue;
    text.replace(at, flag.size(), fmt::format("<span class=\"flag\">{}</span>", flag));
  }
  return text;
}

std::string KeyEntry(std::string_view mark, const std::string& text) {
  return fmt::format("<li><svg viewBox=\"0 0 26 14\">{}</svg>{}</li>", mark, EscapeHtml(text));
}

// What is best, proved or bounded is so of the placements looked at, and of no other.
std::string Key(const Frontier& frontier) {
  const std::string of = LookedAt(frontier);
  std::string key =
      KeyEntry("<path class=\"curve\" d=\"M0 7H26\"/>", "best found, " + of) +
      KeyEntry("<circle class=\"point proved\" cx=\"13\" cy=\"7\" r=\"4.5\"/>",
               "proved optimal for " + of) +
      KeyEntry("<circle class=\"point\" cx=\"13\" cy=\"7\" r=\"4.5\"/>", "not proved") +
      KeyEntry("<path class=\"bound\" d=\"M0 7H26\"/>", "no order of " + of + " can be below") +
      KeyEntry("<rect class=\"band\" width=\"26\" height=\"14\"/>", "where the best may lie");
  bool covered = false;
  bool others = false;
  for (const FrontierSchedule& s : frontier.schedules) (s.covered() ? covered : others) = true;
  constexpr std::string_view kDiamond = "d=\"M13 0l7 7l-7 7l-7 -7z\"/>";
  if (covered) {
    key += KeyEntry(fmt::format("<path class=\"schedule\" {}", kDiamond), "named schedule");
  }
  if (others) {
    key += KeyEntry(fmt::format("<path class=\"schedule other\" {}", kDiamond),
                    "named schedule of another placement, or of F&B pairs: may lie below");
  }
  return "<ul class=\"key\">" + key + "</ul>";
}

std::string PointsTable(const Frontier& frontier) {
  std::string out = fmt::format(
      "<h2>Limits</h2>\n<div class=\"scroll\"><table><thead><tr><th>limit</th><th>{}</th>"
      "<th>lower bound</th><th>gap</th><th class=\"l\">proved</th><th class=\"l\">by</th>"
      "<th class=\"l\">placement</th><th class=\"l\">bound of</th></tr></thead><tbody>\n",
      frontier.objective);
  for (const FrontierPoint& p : frontier.points) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2f} %</td><td class=\"l\">{}</td>"
        "<td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>\n",
        FormatMemory(p.limit), FormatTime(p.value()), FormatTime(p.lower_bound()),
        100 * p.certificate.gap, p.certificate.proved_optimal ? "yes" : "no",
        EscapeHtml(p.found_by), EscapeHtml(p.placement), EscapeHtml(p.certificate.bound.reason));
  }
  return out + "</tbody></table></div>\n";
}

std::string SchedulesTable(const Frontier& frontier) {
  if (frontier.schedules.empty()) return "";
  std::string out = fmt::format(
      "<h2>Named schedules</h2>\n<div class=\"scroll\"><table><thead><tr><th class=\"l\">schedule"
      "</th><th>needs</th><th>{}</th><th class=\"l\">placement</th><th class=\"l\">bound covers "
      "it</th></tr></thead><tbody>\n",
      frontier.objective);
  for (const FrontierSchedule& s : frontier.schedules) {
    out += fmt::format(
        "<tr><td class=\"l\">{}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td>"
        "<td class=\"l\">{}</td></tr>\n",
        EscapeHtml(s.name), FormatMemory(s.limit), FormatTime(s.value), EscapeHtml(s.placement),
        s.covered() ? "yes" : "no");
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string FrontierPage(const Frontier& frontier) {
  Chart chart(frontier);
  const std::string drawn = chart.ToString();
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; "
      "style-src &#39;unsafe-inline&#39;\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>Frontier: {} – "
      "Spiritlevel</title>"
      "\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      EscapeHtml(frontier.scenario), kStyle);
  out += fmt::format(
      "<h1>What more memory buys</h1>\n<p class=\"facts\">{}: {} ranks, {} micro-batches, {}, tail "
      "{}, placement {}</p>\n<p class=\"answer\">{}</p>\n",
      EscapeHtml(frontier.scenario), frontier.ranks, frontier.micro_batches, frontier.objective,
      frontier.tail, EscapeHtml(frontier.placement), AnswerMarkup(frontier));
  out += "<figure>\n" + drawn + "<figcaption>" + Key(frontier);
  if (frontier.own_ratio) {
    out += "<p>Limits are those of the rank that has most; all grow together.</p>";
  }
  if (chart.beyond() > 0) {
    out += fmt::format("<p>{} named schedule{} more memory than is drawn; see the table.</p>",
                       chart.beyond(), chart.beyond() == 1 ? " needs" : "s need");
  }
  if (frontier.interrupted) out += "<p>The search was interrupted.</p>";
  out += "</figcaption>\n</figure>\n" + PointsTable(frontier) + SchedulesTable(frontier);
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace spiritlevel
