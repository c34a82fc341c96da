#include "sim/analysis/check_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sim/analysis/check_dropped.h"
#include "sim/analysis/check_gradients.h"
#include "sim/analysis/check_records.h"
#include "sim/analysis/check_tails.h"
#include "sim/analysis/check_validations.h"

namespace spiritlevel {
namespace {

using check::TimelineRecords;

// Stage numbers have 16 bits, so no more ranks than this can have a stage each.
constexpr int32_t kMaxRanks = 1 << 16;

bool IsMessage(NodeKind kind) { return kind == NodeKind::kSend || kind == NodeKind::kReceive; }

bool HasOp(NodeKind kind) { return RunsOps(kind) || kind == NodeKind::kDroppedOp; }

// Wraps around instead of overflowing, since nothing is known about measured numbers.
Bytes Sum(const MemoryByCategory& memory) {
  uint64_t sum = 0;
  for (const Bytes bytes : memory) sum += static_cast<uint64_t>(bytes);
  return static_cast<Bytes>(sum);
}

bool AnyNegative(const MemoryByCategory& memory) {
  Bytes bits = 0;
  for (const Bytes bytes : memory) bits |= bytes;
  return bits < 0;
}

MemoryCategory Largest(const MemoryByCategory& memory) {
  return static_cast<MemoryCategory>(std::max_element(memory.begin(), memory.end()) -
                                     memory.begin());
}

Bytes Of(const MemoryByCategory& memory, MemoryCategory category) {
  return memory[static_cast<size_t>(category)];
}

// A compute-lane node as a finding names it.
struct NodeLabel {
  NodeKind kind = NodeKind::kOp;
  int32_t iteration = 0;
  Op op;
  Op second;
  Part part{};

  static NodeLabel Of(const Event& e) { return {e.kind, e.iteration, e.op, e.second, e.part}; }

  std::string Text() const { return fmt::format("{} of iteration {}", Node(), iteration); }

 private:
  std::string Node() const {
    switch (kind) {
      case NodeKind::kPair:
        return fmt::format("({};{})", ToString(op), ToString(second));
      case NodeKind::kPart:
        return fmt::format("part {} of {}", part.index, ToString(op));
      case NodeKind::kCollective:
        return "the collective";
      case NodeKind::kOptimizer:
        return "the optimizer step";
      case NodeKind::kValidation:
        return "the validation";
      case NodeKind::kRollback:
        return "the rollback";
      default:
        return ToString(op);
    }
  }
};

// What is known of a rank's compute lane so far.
struct LaneState {
  bool begun = false;
  bool over_limit = false;
  TimeNs end = 0;
  NodeLabel last;
  int32_t parameter_version = 0;  // that the last node read or left
  MemoryByCategory memory{};
};

bool IsSane(const Op& op) { return op.micro_batch >= 0 && static_cast<int>(op.pass) < kNumPasses; }

bool IsSane(const Part& part) { return part.index >= 0 && part.index < part.count; }

bool IsSane(const Event& e) {
  if (e.rank < 0 || e.rank >= kMaxRanks || e.iteration < 0) return false;
  if (!HasOp(e.kind) && !IsMessage(e.kind)) return true;
  if (e.kind == NodeKind::kPart && !IsSane(e.part)) return false;
  return IsSane(e.op) && (e.kind != NodeKind::kPair || IsSane(e.second));
}

}  // namespace

// What can be judged event by event is, at once; the rest is kept for Finish().
struct TimelineChecker::State {
  std::optional<Bytes> limit;
  std::vector<Bytes> limits;     // by rank, in place of the one for all
  std::vector<LaneState> lanes;  // by rank
  TimelineRecords records;
  TimelineRecords dropped;
  check::TailChecker tails;
  check::ValidationChecker validations;
  check::GradientChecker gradients;
  FindingList findings;

  State(std::optional<Bytes> memory_limit, LastTail last_tail)
      : limit(memory_limit), tails(last_tail), validations(last_tail) {}
  State(std::vector<Bytes> by_rank, LastTail last_tail)
      : limits(std::move(by_rank)), tails(last_tail), validations(last_tail) {}

  std::optional<Bytes> LimitOf(int rank) const {
    const auto i = static_cast<size_t>(rank);
    return i < limits.size() ? limits[i] : limit;
  }

  void Add(const Event& e) {
    if (!IsSane(e)) {
      findings.Add("bad_event", [&] {
        return fmt::format("rank {}, iteration {}, micro-batch {}, pass {}: no such thing can be",
                           e.rank, e.iteration, e.op.micro_batch, static_cast<int>(e.op.pass));
      });
    } else if (IsMessage(e.kind)) {
      AddMessageEnd(e);
    } else if (e.kind == NodeKind::kReduction) {
      validations.AddReduction(e);
      gradients.AddReduction(e);
    } else if (SumsGradients(e.kind)) {
      gradients.AddSum(e);
    } else {
      if (static_cast<size_t>(e.rank) >= lanes.size()) {
        lanes.resize(static_cast<size_t>(e.rank) + 1);
      }
      AddNode(e, lanes[e.rank]);
    }
  }

  void AddMessageEnd(const Event& e) {
    if (e.end < e.start) {
      findings.Add("message", [&] {
        return fmt::format("rank {}: message {} ends at {} ns, before it starts at {} ns", e.rank,
                           e.message, e.end, e.start);
      });
    }
    TimelineRecords& flow = e.dropped ? dropped : records;
    flow.message_ends.push_back({.start = e.start,
                                 .end = e.end,
                                 .bytes = e.bytes,
                                 .id = e.message,
                                 .rank = e.rank,
                                 .peer = e.peer,
                                 .iteration = e.iteration,
                                 .parameter_version = e.parameter_version,
                                 .op = e.op,
                                 .receives = e.kind == NodeKind::kReceive});
  }

  void AddNode(const Event& e, LaneState& lane) {
    CheckLane(e, lane);
    CheckVersion(e, lane);
    CheckMemory(e, lane);
    Record(e);
    lane.begun = true;
    lane.end = e.end;
    lane.last = NodeLabel::Of(e);
    lane.parameter_version = e.parameter_version;
    lane.memory = e.after;
  }

  void CheckLane(const Event& e, const LaneState& lane) {
    if (e.end < e.start) {
      findings.Add("overlap", [&] {
        return fmt::format("rank {}: {} ends at {} ns, before it starts at {} ns", e.rank,
                           NodeLabel::Of(e).Text(), e.end, e.start);
      });
    }
    if (lane.begun && e.start < lane.end) {
      findings.Add("overlap", [&] {
        return fmt::format("rank {}: {} starts at {} ns, before {} ends at {} ns", e.rank,
                           NodeLabel::Of(e).Text(), e.start, lane.last.Text(), lane.end);
      });
    }
  }

  // Only an optimizer step changes the version on a rank, by one. Since a lane runs one node at a
  // time, in this order, whatever reads a version also starts after the step that left it.
  void CheckVersion(const Event& e, const LaneState& lane) {
    const bool steps = e.kind == NodeKind::kOptimizer;
    const int64_t right = int64_t{lane.parameter_version} + (steps ? 1 : 0);
    if (!lane.begun || e.parameter_version == right) return;
    findings.Add("version", [&] {
      return fmt::format("rank {}: {} {} parameter version {} after {}, which {} version {}",
                         e.rank, NodeLabel::Of(e).Text(), steps ? "leaves" : "reads",
                         e.parameter_version, lane.last.Text(),
                         lane.last.kind == NodeKind::kOptimizer ? "left" : "read",
                         lane.parameter_version);
    });
  }

  void CheckMemory(const Event& e, LaneState& lane) {
    if (lane.begun && e.before != lane.memory) {
      findings.Add("ledger", [&] { return BrokenChain(e, lane); });
    }
    const Bytes during = Sum(e.during);
    if (during != e.live) {
      findings.Add("ledger", [&] {
        return fmt::format(
            "rank {}: while {} runs, the categories sum to {} bytes, the live total "
            "is {}",
            e.rank, NodeLabel::Of(e).Text(), during, e.live);
      });
    }
    for (const MemoryByCategory* memory : {&e.before, &e.during, &e.after}) {
      if (AnyNegative(*memory)) AddNegative(e, *memory);
    }
    const std::optional<Bytes> of_rank = LimitOf(e.rank);
    if (of_rank && !lane.over_limit) CheckLimit(e, lane, during, *of_rank);
  }

  static std::string BrokenChain(const Event& e, const LaneState& lane) {
    const auto differs = std::mismatch(e.before.begin(), e.before.end(), lane.memory.begin());
    const auto category = static_cast<MemoryCategory>(differs.first - e.before.begin());
    return fmt::format("rank {}: {} leaves {} bytes of {}, and {} finds {}", e.rank,
                       lane.last.Text(), *differs.second, Name(category), NodeLabel::Of(e).Text(),
                       *differs.first);
  }

  void AddNegative(const Event& e, const MemoryByCategory& memory) {
    findings.Add("negative_memory", [&] {
      const auto lowest = std::min_element(memory.begin(), memory.end());
      return fmt::format("rank {}: {} has {} bytes of {}", e.rank, NodeLabel::Of(e).Text(), *lowest,
                         Name(static_cast<MemoryCategory>(lowest - memory.begin())));
    });
  }

  // Measured events may state only one of the totals, and an op may leave more than it held.
  void CheckLimit(const Event& e, LaneState& lane, Bytes during, Bytes of_rank) {
    const Bytes before = Sum(e.before);
    const Bytes after = Sum(e.after);
    const Bytes most = std::max({e.live, during, before, after});
    if (most <= of_rank) return;
    lane.over_limit = true;
    const MemoryByCategory& memory = most == after && after > during     ? e.after
                                     : most == before && before > during ? e.before
                                                                         : e.during;
    findings.Add("memory_limit", [&] {
      const MemoryCategory category = Largest(memory);
      return fmt::format(
          "rank {}: {} brings live memory to {} ({} bytes), over the limit of {}; the largest part "
          "is {}, {}",
          e.rank, NodeLabel::Of(e).Text(), FormatBytes(most), most, FormatBytes(of_rank),
          Phrase(category), FormatBytes(Of(memory, category)));
    });
  }

  void Record(const Event& e) {
    validations.AddNode(e, findings);
    if (e.kind == NodeKind::kDroppedOp) RecordOp(e, e.op, dropped);
    if (e.kind == NodeKind::kDroppedOp || e.kind == NodeKind::kValidation ||
        e.kind == NodeKind::kRollback) {
      return;
    }
    tails.Add(e, findings);
    gradients.AddNode(e, findings);
    if (!HasOp(e.kind)) return;
    if (e.kind == NodeKind::kPart) return gradients.AddPart(e, records, findings);
    RecordOp(e, e.op, records);
    if (e.kind == NodeKind::kPair) RecordOp(e, e.second, records);
  }

  static void RecordOp(const Event& e, const Op& op, TimelineRecords& flow) {
    flow.ops.push_back({e.start, e.end, e.iteration, e.rank, e.parameter_version, op});
  }
};

TimelineChecker::TimelineChecker(std::optional<Bytes> memory_limit, LastTail last_tail)
    : state_(std::make_unique<State>(memory_limit, last_tail)) {}
TimelineChecker::TimelineChecker(std::vector<Bytes> limits, LastTail last_tail)
    : state_(std::make_unique<State>(std::move(limits), last_tail)) {}
TimelineChecker::~TimelineChecker() = default;
TimelineChecker::TimelineChecker(TimelineChecker&&) noexcept = default;
TimelineChecker& TimelineChecker::operator=(TimelineChecker&&) noexcept = default;

void TimelineChecker::Add(const Event& event) { state_->Add(event); }

std::vector<Finding> TimelineChecker::Finish() {
  state_->gradients.FinishParts(state_->records, state_->findings);
  CheckDataFlow(state_->records, state_->findings);
  CheckDropped(state_->dropped, state_->records.ops, state_->findings);
  state_->tails.Finish(state_->findings);
  state_->validations.Finish(state_->findings);
  state_->gradients.Finish(state_->findings);
  return state_->findings.Take();
}

std::vector<Finding> CheckTimeline(std::span<const Event> events, std::optional<Bytes> memory_limit,
                                   LastTail last_tail) {
  TimelineChecker checker(memory_limit, last_tail);
  for (const Event& event : events) checker.Add(event);
  return checker.Finish();
}

}  // namespace spiritlevel
