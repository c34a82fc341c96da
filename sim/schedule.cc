#include "sim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr uint16_t kUnplaced = std::numeric_limits<uint16_t>::max();

// More than this many (stage, micro-batch) cells is a typing error in an order file, and would
// not fit in memory.
constexpr size_t kMaxCells = size_t{1} << 26;

[[noreturn]] void Refuse(std::string what) { throw InputError("schedule: " + std::move(what)); }

// Walks all ranks as far as their orders and the data dependencies let them; no times.
class DryRun {
 public:
  explicit DryRun(const Schedule& schedule)
      : schedule_(schedule),
        micro_batches_(static_cast<size_t>(schedule.num_micro_batches())),
        forward_done_(static_cast<size_t>(schedule.num_stages()) * micro_batches_),
        backward_done_(forward_done_.size()),
        next_(static_cast<size_t>(schedule.num_ranks())),
        queued_(next_.size(), true) {}

  // True if every rank reaches its end.
  bool Run() {
    for (int rank = schedule_.num_ranks() - 1; rank >= 0; --rank) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      queued_[static_cast<size_t>(rank)] = false;
      RunRank(rank);
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      if (next_[static_cast<size_t>(rank)] < schedule_.ops(rank).size()) return false;
    }
    return true;
  }

  // The rank's next op is what it is stuck on.
  size_t reached(int rank) const { return next_[static_cast<size_t>(rank)]; }

  // The op that `op` waits for, if it cannot run now: an F, a B (or BW) or nothing.
  std::optional<Op> WaitsFor(const Op& op) const {
    const auto awaited = [&](int stage, Pass pass) {
      return Op{.micro_batch = op.micro_batch, .stage = static_cast<uint16_t>(stage), .pass = pass};
    };
    if (op.pass == Pass::kF) {
      if (op.stage > 0 && !forward_done_[Cell(op.stage - 1, op)]) {
        return awaited(op.stage - 1, Pass::kF);
      }
      return {};
    }
    if (op.pass == Pass::kW) {
      if (!backward_done_[Cell(op.stage, op)]) return awaited(op.stage, Pass::kB);
      return {};
    }
    if (!forward_done_[Cell(op.stage, op)]) return awaited(op.stage, Pass::kF);
    if (op.stage + 1 < schedule_.num_stages() && !backward_done_[Cell(op.stage + 1, op)]) {
      return awaited(op.stage + 1, Pass::kB);
    }
    return {};
  }

  // What the next op of a stuck rank waits for; of a pair, either half.
  Op WaitsFor(int rank) const {
    const std::span<const Op> ops = schedule_.ops(rank);
    const size_t at = reached(rank);
    const std::optional<Op> first = WaitsFor(ops[at]);
    return first ? *first : *WaitsFor(ops[at + 1]);
  }

 private:
  size_t Cell(int stage, const Op& op) const {
    return static_cast<size_t>(stage) * micro_batches_ + static_cast<size_t>(op.micro_batch);
  }

  bool CanRun(const Op& op) const {
    switch (op.pass) {
      case Pass::kF:
        return op.stage == 0 || forward_done_[Cell(op.stage - 1, op)];
      case Pass::kW:
        return backward_done_[Cell(op.stage, op)];
      case Pass::kB:
      case Pass::kBW:
        return forward_done_[Cell(op.stage, op)] &&
               (op.stage + 1 == schedule_.num_stages() || backward_done_[Cell(op.stage + 1, op)]);
    }
    return false;
  }

  void RunRank(int rank) {
    const std::span<const Op> ops = schedule_.ops(rank);
    size_t& next = next_[static_cast<size_t>(rank)];
    while (next < ops.size()) {
      const size_t width = ops[next].overlaps_next ? 2 : 1;
      if (!CanRun(ops[next]) || (width == 2 && !CanRun(ops[next + 1]))) return;
      for (size_t i = 0; i < width; ++i) Finish(ops[next + i]);
      next += width;
    }
  }

  void Finish(const Op& op) {
    if (op.pass == Pass::kF) {
      forward_done_[Cell(op.stage, op)] = 1;
      if (op.stage + 1 < schedule_.num_stages()) Wake(op.stage + 1, op.micro_batch);
    } else if (op.pass != Pass::kW) {
      backward_done_[Cell(op.stage, op)] = 1;
      if (op.stage > 0) Wake(op.stage - 1, op.micro_batch);
    }
  }

  void Wake(int stage, int micro_batch) {
    const int rank = schedule_.rank_of(stage, micro_batch);
    if (queued_[static_cast<size_t>(rank)]) return;
    queued_[static_cast<size_t>(rank)] = true;
    runnable_.push_back(rank);
  }

  const Schedule& schedule_;
  size_t micro_batches_;
  std::vector<uint8_t> forward_done_;
  std::vector<uint8_t> backward_done_;
  std::vector<size_t> next_;
  std::vector<uint8_t> queued_;
  std::vector<int> runnable_;
};

// Stuck ranks, each waiting for the next, the last for the first.
std::vector<int> CycleOfRanks(const Schedule& schedule, const DryRun& run) {
  int rank = 0;
  while (run.reached(rank) >= schedule.ops(rank).size()) ++rank;
  std::vector<int> seen;
  while (std::find(seen.begin(), seen.end(), rank) == seen.end()) {
    seen.push_back(rank);
    const Op awaited = run.WaitsFor(rank);
    rank = schedule.rank_of(awaited.stage, awaited.micro_batch);
  }
  seen.erase(seen.begin(), std::find(seen.begin(), seen.end(), rank));
  return seen;
}

// "2B0" where B and W are split there, else "2BW0".
std::string NameOfAwaited(const Schedule& schedule, Op op) {
  if (op.pass == Pass::kB) {
    for (const Op& other : schedule.ops(schedule.rank_of(op.stage, op.micro_batch))) {
      const bool same = other.stage == op.stage && other.micro_batch == op.micro_batch;
      if (same && other.pass == Pass::kBW) op.pass = Pass::kBW;
    }
  }
  return ToString(op);
}

std::string DescribeDeadlock(const Schedule& schedule, const DryRun& run) {
  constexpr size_t kBefore = 4;
  constexpr size_t kAfter = 5;
  constexpr size_t kMostRanks = 8;
  std::string out = "schedule deadlocks:";
  const std::vector<int> cycle = CycleOfRanks(schedule, run);
  for (const int rank : std::span(cycle).first(std::min(cycle.size(), kMostRanks))) {
    const std::span<const Op> ops = schedule.ops(rank);
    const size_t at = run.reached(rank);
    out += fmt::format("\n  rank {}:{}", rank, at > kBefore ? " ..." : "");
    for (size_t i = at - std::min(at, kBefore); i < std::min(ops.size(), at + kAfter); ++i) {
      out += fmt::format("{} {}", i == at ? " |" : "", ToString(ops[i]));
    }
    out += fmt::format("{}   <-- {} waits for {}", at + kAfter < ops.size() ? " ..." : "",
                       ToString(ops[at]), NameOfAwaited(schedule, run.WaitsFor(rank)));
  }
  if (cycle.size() > kMostRanks) {
    out +=
        fmt::format("\n  and {} more ranks, each waiting for the next", cycle.size() - kMostRanks);
  }
  return out;
}

void CheckPairs(const std::vector<Op>& ops, size_t rank) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].overlaps_next) continue;
    const bool whole = i + 1 < ops.size() && !ops[i + 1].overlaps_next;
    const Pass a = ops[i].pass;
    const Pass b = whole ? ops[i + 1].pass : Pass::kF;
    if (!whole || !((a == Pass::kF && b == Pass::kBW) || (a == Pass::kBW && b == Pass::kF))) {
      Refuse(fmt::format("rank {}: the F&B pair at {} is not an F and a BW side by side", rank,
                         ToString(ops[i])));
    }
    ++i;
  }
}

}  // namespace

Schedule::Schedule(const Orders& orders) {
  if (orders.empty()) Refuse("has no ranks");
  if (orders.size() >= kUnplaced) Refuse(fmt::format("{} ranks are too many", orders.size()));
  rank_begin_.push_back(0);
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    if (orders[rank].empty()) Refuse(fmt::format("rank {} has nothing to do", rank));
    CheckPairs(orders[rank], rank);
    for (const Op& op : orders[rank]) {
      if (op.micro_batch < 0)
        Refuse(fmt::format("{}: negative micro-batch", ::spiritlevel::ToString(op)));
      num_stages_ = std::max(num_stages_, op.stage + 1);
      num_micro_batches_ = std::max(num_micro_batches_, op.micro_batch);
    }
    ops_.insert(ops_.end(), orders[rank].begin(), orders[rank].end());
    rank_begin_.push_back(static_cast<int32_t>(ops_.size()));
  }
  const size_t cells =
      static_cast<size_t>(num_stages_) * (static_cast<size_t>(num_micro_batches_) + 1);
  if (cells > kMaxCells || cells > ops_.size()) {
    Refuse(fmt::format("{} ops cannot be all passes of {} stages and {} micro-batches", ops_.size(),
                       num_stages_, static_cast<size_t>(num_micro_batches_) + 1));
  }
  ++num_micro_batches_;
  CheckCounts();
  Place(orders);
  CheckRuns();
}

Schedule Schedule::Parse(std::string_view text) { return Schedule(ParseOrders(text)); }

void Schedule::CheckCounts() const {
  const size_t m = static_cast<size_t>(num_micro_batches_);
  std::vector<uint8_t> seen(static_cast<size_t>(num_stages_) * m);
  for (const Op& op : ops_) {
    uint8_t& cell = seen[static_cast<size_t>(op.stage) * m + static_cast<size_t>(op.micro_batch)];
    const auto bit = static_cast<uint8_t>(1u << static_cast<unsigned>(op.pass));
    if ((cell & bit) != 0) Refuse(fmt::format("{} stands twice", ::spiritlevel::ToString(op)));
    cell = static_cast<uint8_t>(cell | bit);
  }
  constexpr uint8_t kF = 1, kB = 2, kW = 4, kBW = 8;
  for (int stage = 0; stage < num_stages_; ++stage) {
    for (int i = 0; i < num_micro_batches_; ++i) {
      const uint8_t cell = seen[static_cast<size_t>(stage) * m + static_cast<size_t>(i)];
      if ((cell & kF) == 0) Refuse(fmt::format("{}F{} is missing", stage, i));
      const auto backward = static_cast<uint8_t>(cell & (kB | kW | kBW));
      if (backward == kBW || backward == (kB | kW)) continue;
      Refuse(fmt::format("stage {} must run BW, or B and W, once for micro-batch {}", stage, i));
    }
  }
}

void Schedule::Place(const Orders& orders) {
  const size_t m = static_cast<size_t>(num_micro_batches_);
  std::vector<uint16_t> full(static_cast<size_t>(num_stages_) * m, kUnplaced);
  stages_of_.resize(orders.size());
  std::vector<int> last_holder(static_cast<size_t>(num_stages_), -1);
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    for (const Op& op : orders[rank]) {
      uint16_t& cell =
          full[static_cast<size_t>(op.stage) * m + static_cast<size_t>(op.micro_batch)];
      if (cell != kUnplaced && cell != rank) {
        Refuse(fmt::format("stage {} runs micro-batch {} on rank {} and on rank {}", op.stage,
                           op.micro_batch, cell, rank));
      }
      cell = static_cast<uint16_t>(rank);
      if (last_holder[op.stage] != static_cast<int>(rank)) {
        last_holder[op.stage] = static_cast<int>(rank);
        stages_of_[rank].push_back(op.stage);
      }
    }
    std::sort(stages_of_[rank].begin(), stages_of_[rank].end());
  }
  // Usually a stage has one rank; then a table of S entries says it, and stays in the cache.
  bool by_micro_batch = false;
  for (size_t stage = 0; stage < static_cast<size_t>(num_stages_); ++stage) {
    const auto row = full.begin() + static_cast<std::ptrdiff_t>(stage * m);
    by_micro_batch |= std::any_of(row, row + static_cast<std::ptrdiff_t>(m),
                                  [&](uint16_t r) { return r != *row; });
  }
  if (by_micro_batch) {
    rank_of_ = std::move(full);
    stage_stride_ = m;
    micro_batch_stride_ = 1;
    return;
  }
  for (size_t stage = 0; stage < static_cast<size_t>(num_stages_); ++stage) {
    rank_of_.push_back(full[stage * m]);
  }
}

void Schedule::CheckRuns() const {
  DryRun run(*this);
  if (!run.Run()) throw InputError(DescribeDeadlock(*this, run));
}

int Schedule::chunk_of(int rank, int stage) const {
  const std::vector<int>& stages = stages_of_[rank];
  return static_cast<int>(std::lower_bound(stages.begin(), stages.end(), stage) - stages.begin());
}

int Schedule::parameter_copies() const {
  size_t held = 0;
  for (const std::vector<int>& stages : stages_of_) held += stages.size();
  return static_cast<int>((held + static_cast<size_t>(num_stages_) - 1) /
                          static_cast<size_t>(num_stages_));
}

std::string Schedule::ToString() const { return ::spiritlevel::ToString(ToOrders()); }

Orders Schedule::ToOrders() const {
  Orders orders;
  for (int rank = 0; rank < num_ranks(); ++rank)
    orders.emplace_back(ops(rank).begin(), ops(rank).end());
  return orders;
}

}  // namespace spiritlevel
