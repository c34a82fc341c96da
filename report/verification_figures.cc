#include "report/verification_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"
#include "sim/event.h"

namespace spiritlevel {
namespace {

const NodeTimes& TimesOf(const Timeline& timeline, NodeId id) {
  return timeline.nodes[static_cast<size_t>(id)];
}

// What one rank does in one iteration.
struct RankIteration {
  TimeNs first_start = 0;
  TimeNs last_end = 0;
  TimeNs busy = 0;
};

RankIteration Read(const Program& program, const Timeline& timeline, int rank, int iteration) {
  RankIteration read;
  bool first = true;
  for (NodeId id = program.iteration_begin(rank, iteration);
       id < program.iteration_begin(rank, iteration + 1); ++id) {
    if (!RunsOps(program.nodes()[id].kind)) continue;
    const NodeTimes& times = TimesOf(timeline, id);
    if (first) read.first_start = times.start;
    first = false;
    read.last_end = times.end;
    read.busy += times.end - times.start;
  }
  return read;
}

double Share(TimeNs part, TimeNs whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

template <class T>
std::vector<T> Sorted(std::span<const IterationFigures> figures, T IterationFigures::*member) {
  std::vector<T> values;
  for (const IterationFigures& each : figures) values.push_back(each.*member);
  std::sort(values.begin(), values.end());
  return values;
}

double MedianShare(std::span<const IterationFigures> figures, double IterationFigures::*member) {
  const std::vector<double> values = Sorted(figures, member);
  if (values.empty()) return 0;
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

TimeNs MedianTime(std::span<const IterationFigures> figures, TimeNs IterationFigures::*member) {
  return MedianOf(Sorted(figures, member));
}

// The first instant at which some rank is free for the iteration.
TimeNs BeginOf(const Program& program, const Timeline& timeline, int iteration) {
  if (iteration == 0) return 0;
  TimeNs begin = std::numeric_limits<TimeNs>::max();
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const NodeId before = program.iteration_begin(rank, iteration) - 1;
    begin = std::min(begin, TimesOf(timeline, before).end);
  }
  return begin;
}

// Times count from `begin` on; what was ready before that was ready then.
NodeTimes Shifted(const NodeTimes& times, TimeNs begin) {
  return {.start = times.start - begin,
          .end = times.end - begin,
          .ready = std::max<TimeNs>(0, times.ready - begin),
          .live = times.live,
          .cause = times.cause};
}

// The same nodes in a longer Program and in one of a single iteration.
class Slice {
 public:
  Slice(const Program& program, const Timeline& timeline, int iteration, const Program& one)
      : program_(program),
        timeline_(timeline),
        iteration_(iteration),
        one_(one),
        begin_(BeginOf(program, timeline, iteration)) {}

  Timeline Cut() {
    cut_.nodes.resize(static_cast<size_t>(one_.num_lane_nodes()));
    cut_.messages.resize(one_.messages().size());
    cut_.reductions.resize(one_.reductions().size());
    for (int rank = 0; rank < one_.num_ranks(); ++rank) {
      CutRank(rank);
      CutReductions(rank);
    }
    return std::move(cut_);
  }

 private:
  void CutRank(int rank) {
    const NodeId from = program_.iteration_begin(rank, iteration_);
    const NodeId to = one_.iteration_begin(rank, 0);
    for (NodeId i = 0; to + i < one_.iteration_begin(rank, 1); ++i) {
      const Node& node = program_.nodes()[from + i];
      const Node& same = one_.nodes()[to + i];
      SPIRITLEVEL_CHECK(node.kind == same.kind && node.op == same.op,
                        "iterations of one Program are alike");
      NodeTimes& times = cut_.nodes[static_cast<size_t>(to + i)];
      times = Shifted(TimesOf(timeline_, from + i), begin_);
      times.cause = kNone;
      for (int input = 0; input < 2; ++input) {
        const MessageId cause = TimesOf(timeline_, from + i).cause;
        if (cause != kNone && node.inputs[input] == cause) times.cause = same.inputs[input];
      }
      for (int out = 0; out < node.num_outputs; ++out) {
        const MessageTimes& sent = timeline_.messages[static_cast<size_t>(node.first_output + out)];
        cut_.messages[static_cast<size_t>(same.first_output + out)] = {
            .start = sent.start - begin_, .arrival = sent.arrival - begin_};
      }
    }
  }

  void CutReductions(int rank) {
    if (IsPostValidation(one_.tail())) {
      CutReduction(program_.reduction_of(rank, iteration_), one_.reduction_of(rank, 0));
    }
    if (!one_.has_gradient_sums()) return;
    const int32_t from = program_.gradient_sums_begin(rank, iteration_);
    const int32_t to = one_.gradient_sums_begin(rank, 0);
    for (int32_t i = 0; to + i < one_.gradient_sums_end(rank, 0); ++i) {
      CutReduction(from + i, to + i);
    }
  }

  void CutReduction(int32_t from, int32_t to) {
    cut_.reductions[static_cast<size_t>(to)] =
        Shifted(timeline_.reductions[static_cast<size_t>(from)], begin_);
  }

  const Program& program_;
  const Timeline& timeline_;
  const int iteration_;
  const Program& one_;
  const TimeNs begin_;
  Timeline cut_;
};

// Exposed communication: of each op but a rank's first, the part of its wait in which all it waits
// for has been computed. The `transfer` of the stalls, which look at the first iteration alone.
TimeNs ExposedOn(const Program& program, const Timeline& timeline, int rank, int iteration) {
  TimeNs exposed = 0;
  bool first = true;
  TimeNs free = 0;
  for (NodeId id = program.iteration_begin(rank, iteration);
       id < program.iteration_begin(rank, iteration + 1); ++id) {
    const Node& node = program.nodes()[id];
    const NodeTimes& times = TimesOf(timeline, id);
    // A validation or a rollback keeps the rank busy, whatever arrives meanwhile.
    if (!RunsOps(node.kind)) {
      free = times.end;
      continue;
    }
    if (!first && times.ready > free) {
      TimeNs made = free;
      for (const MessageId input : node.inputs) {
        if (input == kNone) continue;
        made = std::max(made, TimesOf(timeline, program.messages()[input].from).end);
      }
      exposed += times.ready - std::min(made, times.ready);
    }
    first = false;
    free = times.end;
  }
  return exposed;
}

}  // namespace

std::vector<IterationFigures> FiguresByIteration(const Program& program, const Timeline& timeline) {
  std::vector<IterationFigures> figures;
  for (int i = 0; i + 1 < program.num_iterations(); ++i) {
    IterationFigures now;
    TimeNs all = 0;
    TimeNs busy = 0;
    TimeNs longest_span = 0;
    TimeNs most_busy = 0;
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      const RankIteration read = Read(program, timeline, rank, i);
      const TimeNs period = Read(program, timeline, rank, i + 1).first_start - read.first_start;
      now.step = std::max(now.step, period);
      now.exposed_communication += ExposedOn(program, timeline, rank, i);
      all += period;
      busy += read.busy;
      longest_span = std::max(longest_span, read.last_end - read.first_start);
      most_busy = std::max(most_busy, read.busy);
    }
    now.idle_share = Share(all - busy, all);
    now.bubble_rate = Share(longest_span - most_busy, longest_span);
    figures.push_back(now);
  }
  return figures;
}

TimeNs TimeBetween(const Program& program, const Timeline& timeline, int first, int last) {
  TimeNs longest = 0;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    longest = std::max(longest, Read(program, timeline, rank, last).first_start -
                                    Read(program, timeline, rank, first).first_start);
  }
  return longest;
}

IterationFigures MedianOf(std::span<const IterationFigures> figures) {
  return {.step = MedianTime(figures, &IterationFigures::step),
          .idle_share = MedianShare(figures, &IterationFigures::idle_share),
          .bubble_rate = MedianShare(figures, &IterationFigures::bubble_rate),
          .exposed_communication = MedianTime(figures, &IterationFigures::exposed_communication)};
}

Timeline OneIteration(const Program& program, const Timeline& timeline, int iteration,
                      const Program& one) {
  return Slice(program, timeline, iteration, one).Cut();
}

std::vector<PassSample> PassSamples(const Program& program, const Timeline& timeline, int first,
                                    int end) {
  std::vector<PassSample> samples;
  // Parts of one op need not stand next to each other.
  std::map<std::tuple<int, int, int, Pass>, size_t> of_parts;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    for (NodeId id = program.iteration_begin(rank, first); id < program.iteration_begin(rank, end);
         ++id) {
      const Node& node = program.nodes()[id];
      const TimeNs took = TimesOf(timeline, id).end - TimesOf(timeline, id).start;
      const PassSample sample{.stage = node.op.stage, .pass = node.op.pass, .duration = took};
      if (node.kind == NodeKind::kOp) samples.push_back(sample);
      if (node.kind != NodeKind::kPart) continue;
      const auto [at, is_first] = of_parts.try_emplace(
          {node.iteration, node.op.stage, node.op.micro_batch, node.op.pass}, samples.size());
      if (is_first) {
        samples.push_back(sample);
      } else {
        samples[at->second].duration += took;
      }
    }
  }
  return samples;
}

std::vector<PeakMemory> PeaksByRank(const Program& program, const Timeline& timeline) {
  std::vector<PeakMemory> peaks(static_cast<size_t>(program.num_ranks()));
  ForEachEvent(program, timeline, program.num_iterations(), [&](const Event& event) {
    if (event.kind == NodeKind::kSend || event.kind == NodeKind::kReceive) return;
    PeakMemory& peak = peaks[static_cast<size_t>(event.rank)];
    peak.live = std::max(peak.live, event.live);
    peak.ledger = std::max(peak.ledger, Total(event.during));
    for (size_t c = 0; c < peak.most.size(); ++c) {
      peak.most[c] = std::max({peak.most[c], event.before[c], event.after[c]});
    }
  });
  return peaks;
}

MostWaiting MostWaitingOf(const Program& program) {
  MostWaiting most;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    MostWaiting now;
    const auto run = [&](const Op& op) {
      if (op.pass == Pass::kF) ++now.for_b;
      if (op.pass == Pass::kB || op.pass == Pass::kBW) --now.for_b;
      if (op.pass == Pass::kB) ++now.for_w;
      if (op.pass == Pass::kW) --now.for_w;
      most.for_b = std::max(most.for_b, now.for_b);
      most.for_w = std::max(most.for_w, now.for_w);
    };
    for (NodeId id = program.iteration_begin(rank, 0); id < program.iteration_begin(rank, 1);
         ++id) {
      const Node& node = program.nodes()[id];
      if (!RunsOps(node.kind)) continue;
      const bool last =
          node.kind != NodeKind::kPart || program.part(node).index + 1 == program.part(node).count;
      if (last) run(node.op);
      if (node.kind == NodeKind::kPair) run(program.second_op(node));
    }
  }
  return most;
}

TimeNs QuantileOf(std::vector<TimeNs> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto index = static_cast<size_t>(std::max(1.0, rank)) - 1;
  return values[std::min(index, values.size() - 1)];
}

TimeNs MedianOf(std::vector<TimeNs> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  if (values.size() % 2 == 1) return values[half];
  return DivideHalfUp(values[half - 1] + values[half], 2);
}

TimeNs BetweenQuartiles(const std::vector<TimeNs>& values) {
  return QuantileOf(values, 0.75) - QuantileOf(values, 0.25);
}

double SpreadOf(const std::vector<TimeNs>& values) {
  return Share(BetweenQuartiles(values), MedianOf(values));
}

int ColdIterations(std::span<const IterationFigures> figures, double threshold) {
  const int count = static_cast<int>(figures.size());
  int cold = 1;
  // Two are left at least, or a run that only gets slower would have none that counts.
  while (cold + 2 < count) {
    std::vector<TimeNs> rest;
    for (const IterationFigures& each : figures.subspan(static_cast<size_t>(cold) + 1)) {
      rest.push_back(each.step);
    }
    const auto limit = static_cast<double>(MedianOf(rest)) * (1 + threshold);
    if (static_cast<double>(figures[static_cast<size_t>(cold)].step) <= limit) break;
    ++cold;
  }
  return std::min(cold, count);
}

}  // namespace spiritlevel
