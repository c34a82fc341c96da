#include "sim/search/exact_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/check.h"
#include "sim/search/exact.h"

namespace spiritlevel {
namespace {

// Above so many units the solver's tolerance (1e-6 of a big number) would blur them.
constexpr int64_t kMostUnits = 300'000;

}  // namespace

// A row under construction: sum >= 0.
class ExactModel::RowBuilder {
 public:
  RowBuilder& Add(double factor, int column) {
    factors_[column] += factor;
    return *this;
  }
  RowBuilder& Add(double constant) {
    constant_ += constant;
    return *this;
  }
  RowBuilder& Add(double factor, const Linear& of) {
    constant_ += factor * of.constant;
    if (of.column >= 0) factors_[of.column] += factor * of.factor;
    return *this;
  }
  void Finish(IntegerProgram* program) const {
    IntegerProgram::Row row{.terms = {}, .at_least = -constant_};
    for (const auto& [column, factor] : factors_) {
      if (factor != 0) row.terms.push_back({column, factor});
    }
    if (!row.terms.empty()) program->rows.push_back(std::move(row));
  }

 private:
  std::map<int, double> factors_;
  double constant_ = 0;
};

ExactModel::ExactModel(const SearchProblem& problem, const Orders& start, TimeNs value,
                       TimeNs bound)
    : problem_(problem), micro_batches_(problem.micro_batches()) {
  ChooseUnit();
  MakeClasses();
  MakeNodes();
  Imply();
  AddColumns(value, bound);
  if (choices_ > kMostExactChoices) return;
  AddDependencies();
  AddOrderRows();
  for (int rank = 0; rank < problem_.placement.ranks; ++rank) {
    AddFusionRows(rank);
    AddMemoryRows(rank);
    AddObjectiveRows(rank);
  }
  SetStart(start);
}

// The largest unit of which all times are multiples; where that makes too many, one so large that
// they do not, and times are rounded down: a bound stays one.
void ExactModel::ChooseUnit() {
  const Costs& costs = *problem_.costs;
  const Costs::Common& common = costs.common();
  TimeNs divisor = std::gcd(common.hop.latency, common.hop.busy);
  TimeNs sum = 0;
  const TimeNs hops = 2 * (common.hop.latency + common.hop.busy);
  const auto note = [&](TimeNs time) {
    divisor = std::gcd(divisor, time);
    sum += time;
  };
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    for (int i = 0; i < micro_batches_; ++i) {
      const StageCost& c = costs.of(stage, i);
      note(c.forward + common.launch);
      note(c.input_grad + common.launch);
      note(c.weight_grad + common.launch);
      note(c.fused_backward + common.launch);
      sum += hops;
    }
  }
  if (problem_.objective == Objective::kMakespan && problem_.tail == Tail::kNoTail) {
    for (int rank = 0; rank < problem_.placement.ranks; ++rank) note(OptimizerOf(problem_, rank));
  }
  unit_ = std::max<TimeNs>(1, divisor);
  if (sum / unit_ > kMostUnits) {
    unit_ = sum / kMostUnits + 1;
    exact_unit_ = false;
  }
  horizon_ = sum / unit_ + 1;
}

// Micro-batches that cost the same everywhere may pass every stage in the order of their numbers:
// it is only a matter of names.
void ExactModel::MakeClasses() {
  const Costs& costs = *problem_.costs;
  for (int i = 0; i < micro_batches_; ++i) {
    int found = -1;
    for (int j = i - 1; j >= 0 && found < 0; --j) {
      bool same = true;
      for (int s = 0; s < costs.num_stages() && same; ++s) same = costs.of(s, i) == costs.of(s, j);
      if (same) found = j;
    }
    previous_alike_.push_back(found);
  }
}

int64_t ExactModel::Hop(int stage) const {
  const Placement& placement = problem_.placement;
  if (placement.rank_of(stage) == placement.rank_of(stage + 1)) return 0;
  const HopCost& hop = problem_.costs->common().hop;
  return Units(hop.latency + hop.busy);
}

void ExactModel::MakeNodes() {
  const TimeNs launch = problem_.costs->common().launch;
  const int stages = problem_.placement.num_stages();
  by_rank_.resize(static_cast<size_t>(problem_.placement.ranks));
  for (int stage = 0; stage < stages; ++stage) {
    for (int i = 0; i < micro_batches_; ++i) {
      const StageCost& c = problem_.costs->of(stage, i);
      const int64_t b = Units(c.input_grad + launch);
      const int64_t w = Units(c.weight_grad + launch);
      const int64_t bw = Units(c.fused_backward + launch);
      const int64_t least_b = std::min(b, bw);
      const int64_t least_w = std::min(b + w, bw) - least_b;
      const auto add = [&](Kind kind, int64_t duration, int64_t fused, int64_t least) {
        by_rank_[static_cast<size_t>(problem_.placement.rank_of(stage))].push_back(
            static_cast<int>(nodes_.size()));
        nodes_.push_back({.stage = stage,
                          .micro_batch = i,
                          .kind = kind,
                          .duration = duration,
                          .fused = fused,
                          .least = least});
      };
      const int64_t f = Units(c.forward + launch);
      add(kF, f, f, f);
      add(kB, b, bw, least_b);
      add(kW, w, 0, least_w);
    }
  }
}

void ExactModel::AddEdge(int before, int after, int64_t delay) {
  edges_.push_back({before, after, delay});
}

// And those on the link between two stages are sent one after the other.
void ExactModel::AddEdgesFromAlike(int stage, int micro_batch) {
  const int64_t busy = Units(problem_.costs->common().hop.busy);
  int64_t queue = 0;
  for (int i = previous_alike_[static_cast<size_t>(micro_batch)]; i >= 0;
       i = previous_alike_[static_cast<size_t>(i)]) {
    if (queue == 0) {
      AddEdge(Id(stage, i, kF), Id(stage, micro_batch, kF), 0);
      AddEdge(Id(stage, i, kB), Id(stage, micro_batch, kB), 0);
      // Of a fused backward W stays with its B: AddFusionRows().
      if (!MayFuse(stage, i)) AddEdge(Id(stage, i, kW), Id(stage, micro_batch, kW), 0);
    }
    if (busy == 0) return;
    queue += busy;
    if (stage + 1 < problem_.placement.num_stages() && Hop(stage) > 0) {
      AddEdge(Id(stage, i, kF), Id(stage + 1, micro_batch, kF), Hop(stage) + queue);
      AddEdge(Id(stage + 1, i, kB), Id(stage, micro_batch, kB), Hop(stage) + queue);
    }
  }
}

// Which ops come before which whatever is chosen: dependencies, and alike micro-batches in order.
void ExactModel::Imply() {
  const int stages = problem_.placement.num_stages();
  for (int stage = 0; stage < stages; ++stage) {
    for (int i = 0; i < micro_batches_; ++i) {
      if (stage + 1 < stages) {
        AddEdge(Id(stage, i, kF), Id(stage + 1, i, kF), Hop(stage));
        AddEdge(Id(stage + 1, i, kB), Id(stage, i, kB), Hop(stage));
      }
      AddEdge(Id(stage, i, kF), Id(stage, i, kB), 0);
      AddEdge(Id(stage, i, kB), Id(stage, i, kW), 0);
      AddEdgesFromAlike(stage, i);
    }
  }
  const size_t count = nodes_.size();
  std::vector<std::vector<const Edge*>> out(count);
  std::vector<int> missing(count, 0);
  for (const Edge& edge : edges_) {
    out[static_cast<size_t>(edge.before)].push_back(&edge);
    ++missing[static_cast<size_t>(edge.after)];
  }
  std::vector<size_t> sorted;
  for (size_t id = 0; id < count; ++id) {
    if (missing[id] == 0) sorted.push_back(id);
  }
  for (size_t i = 0; i < sorted.size(); ++i) {
    const Node& node = nodes_[sorted[i]];
    for (const Edge* edge : out[sorted[i]]) {
      Node& next = nodes_[static_cast<size_t>(edge->after)];
      next.earliest = std::max(next.earliest, node.earliest + node.least + edge->delay);
      if (--missing[static_cast<size_t>(edge->after)] == 0) {
        sorted.push_back(static_cast<size_t>(edge->after));
      }
    }
  }
  implied_.assign(count * count, false);
  for (size_t i = sorted.size(); i-- > 0;) {
    for (const Edge* edge : out[sorted[i]]) {
      const auto after = static_cast<size_t>(edge->after);
      implied_[sorted[i] * count + after] = true;
      for (size_t k = 0; k < count; ++k) {
        if (implied_[after * count + k]) implied_[sorted[i] * count + k] = true;
      }
    }
  }
}

// Where it takes less time than B and W, or may need less memory.
bool ExactModel::MayFuse(int stage, int micro_batch) const {
  const StageCost& c = problem_.costs->of(stage, micro_batch);
  const auto transient = [&](Pass pass) { return c.transient[static_cast<size_t>(pass)]; };
  return c.fused_backward < c.input_grad + c.weight_grad + problem_.costs->common().launch ||
         c.weight_state > c.activation || transient(Pass::kB) + transient(Pass::kW) > 0;
}

// Where all micro-batches are alike, each rank's first op is known, and so is its start, since ops
// start as early as they can. Else it may start at will, which only lowers the program's optimum.
bool ExactModel::FirstOpsAreFixed() const {
  for (int i = 0; i < micro_batches_; ++i) {
    if (previous_alike_[static_cast<size_t>(i)] != i - 1) return false;
  }
  return exact_unit_;
}

void ExactModel::AddColumns(TimeNs value, TimeNs bound) {
  const Costs::Common& common = problem_.costs->common();
  if (problem_.objective == Objective::kSpan) {
    constant_ = -common.launch;
  } else if (problem_.tail == Tail::kBarrier) {
    constant_ = common.barrier;
    TimeNs most = 0;
    for (int rank = 0; rank < problem_.placement.ranks; ++rank) {
      most = std::max(most, OptimizerOf(problem_, rank));
    }
    constant_ += most;
  }
  const double at_most = std::ceil(static_cast<double>(value - constant_) / double(unit_));
  const double at_least =
      exact_unit_ ? std::ceil(static_cast<double>(bound - constant_) / double(unit_)) : 0;
  program_.objective =
      program_.AddColumn({.lower = at_least, .upper = at_most, .integer = exact_unit_});
  for (Node& node : nodes_) {
    node.start = program_.AddColumn(
        {.lower = static_cast<double>(node.earliest), .upper = static_cast<double>(horizon_)});
  }
  for (int rank = 0; rank < problem_.placement.ranks; ++rank) {
    const Node& first =
        nodes_[static_cast<size_t>(Id(problem_.placement.stage_of(rank, 0), 0, kF))];
    if (FirstOpsAreFixed()) {
      program_.columns[static_cast<size_t>(first.start)].upper =
          static_cast<double>(first.earliest);
      first_.push_back(first.start);
    } else {
      first_.push_back(program_.AddColumn({.upper = static_cast<double>(horizon_)}));
    }
  }
  for (int stage = 0; stage < problem_.placement.num_stages(); ++stage) {
    for (int i = 0; i < micro_batches_; ++i) {
      const bool useful = MayFuse(stage, i);
      fused_.push_back(useful ? program_.AddColumn({.upper = 1, .integer = true}) : -1);
      choices_ += useful;
    }
  }
  order_.assign(nodes_.size() * nodes_.size(), -1);
  for (const std::vector<int>& ids : by_rank_) {
    for (size_t i = 0; i < ids.size(); ++i) {
      for (size_t j = i + 1; j < ids.size(); ++j) {
        if (Implied(ids[i], ids[j]) || Implied(ids[j], ids[i])) continue;
        if (++choices_ > kMostExactChoices) return;
        order_[static_cast<size_t>(ids[i]) * nodes_.size() + static_cast<size_t>(ids[j])] =
            program_.AddColumn({.upper = 1, .integer = true});
      }
    }
  }
}

ExactModel::Linear ExactModel::Before(int before, int after) const {
  if (Implied(before, after)) return {.constant = 1};
  if (Implied(after, before)) return {};
  const auto column = [&](int a, int b) {
    return order_[static_cast<size_t>(a) * nodes_.size() + static_cast<size_t>(b)];
  };
  if (before < after) return {.column = column(before, after), .factor = 1};
  return {.constant = 1, .column = column(after, before), .factor = -1};
}

ExactModel::Linear ExactModel::DurationOf(const Node& node) const {
  if (node.kind == kF || FusedColumn(node) < 0) return {.constant = double(node.duration)};
  return {.constant = double(node.duration),
          .column = FusedColumn(node),
          .factor = double(node.fused - node.duration)};
}

void ExactModel::AddDependencies() {
  for (const Edge& edge : edges_) {
    const Node& before = nodes_[static_cast<size_t>(edge.before)];
    const Node& after = nodes_[static_cast<size_t>(edge.after)];
    RowBuilder()
        .Add(1, after.start)
        .Add(-1, before.start)
        .Add(-1, DurationOf(before))
        .Add(-static_cast<double>(edge.delay))
        .Finish(&program_);
  }
}

void ExactModel::AddOrderRows() {
  for (const std::vector<int>& ids : by_rank_) {
    for (const int a : ids) {
      for (const int b : ids) {
        const Linear chosen = Before(a, b);
        if (chosen.column < 0) continue;
        // start(b) >= start(a) + duration(a), unless b comes first.
        const Node& first = nodes_[static_cast<size_t>(a)];
        const Node& second = nodes_[static_cast<size_t>(b)];
        const int64_t longest = std::max(first.duration, first.fused);
        const double big = static_cast<double>(horizon_ + longest - second.earliest);
        RowBuilder()
            .Add(1, second.start)
            .Add(-1, first.start)
            .Add(-1, DurationOf(first))
            .Add(big)
            .Add(-big, chosen)
            .Finish(&program_);
      }
    }
  }
}

// Nothing comes between the two halves of a fused backward.
void ExactModel::AddFusionRows(int rank) {
  const std::vector<int>& ids = by_rank_[static_cast<size_t>(rank)];
  for (const int b : ids) {
    const Node& node = nodes_[static_cast<size_t>(b)];
    if (node.kind != kB || FusedColumn(node) < 0) continue;
    const int w = b + 1;
    for (const int other : ids) {
      if (other == b || other == w) continue;
      // fused: B before it only if W, too.
      RowBuilder()
          .Add(1)
          .Add(-1, FusedColumn(node))
          .Add(-1, Before(b, other))
          .Add(1, Before(w, other))
          .Finish(&program_);
    }
    // Of those alike that are not fused, W's run in the order of their B's.
    for (int i = previous_alike_[static_cast<size_t>(node.micro_batch)]; i >= 0;
         i = previous_alike_[static_cast<size_t>(i)]) {
      RowBuilder()
          .Add(-1)
          .Add(1, FusedColumn(node))
          .Add(1, Before(Id(node.stage, i, kW), w))
          .Finish(&program_);
    }
  }
}

void ExactModel::AddMemoryRows(int rank) {
  const Bytes room = problem_.room(rank);
  if (room == kNoLimit) return;
  const std::vector<int>& ids = by_rank_[static_cast<size_t>(rank)];
  for (const int id : ids) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    const StageCost& c = CostOf(node);
    const auto transient = [&](Pass pass) {
      return static_cast<double>(c.transient[static_cast<size_t>(pass)]);
    };
    const int fused = FusedColumn(node);
    RowBuilder row;
    row.Add(static_cast<double>(room));
    if (node.kind == kF) {
      row.Add(-static_cast<double>(c.activation) - transient(Pass::kF));
    } else {
      const auto more = static_cast<double>(std::max<Bytes>(0, c.weight_state - c.activation));
      const double split = node.kind == kB ? more + transient(Pass::kB) : transient(Pass::kW);
      // Between the halves of a fused backward there is no instant at which what W needs is held.
      const double as_one = node.kind == kB ? transient(Pass::kBW) : -more;
      if (split <= 0 && (fused < 0 || as_one <= 0)) continue;  // it only gives back
      row.Add(-split);
      if (fused >= 0) row.Add(split - as_one, fused);
    }
    for (const int other : ids) {
      if (other == id) continue;
      const Node& o = nodes_[static_cast<size_t>(other)];
      const StageCost& oc = CostOf(o);
      const Bytes change = o.kind == kF   ? oc.activation
                           : o.kind == kB ? oc.weight_state - oc.activation
                                          : -oc.weight_state;
      row.Add(-static_cast<double>(change), Before(other, id));
    }
    row.Finish(&program_);
  }
}

// The objective is no less than what ends last, and what every op has before and behind it.
void ExactModel::AddObjectiveRows(int rank) {
  const std::vector<int>& ids = by_rank_[static_cast<size_t>(rank)];
  const int first = first_[static_cast<size_t>(rank)];
  const bool span = problem_.objective == Objective::kSpan;
  const bool with_optimizer =
      problem_.objective == Objective::kMakespan && problem_.tail == Tail::kNoTail;
  const int64_t optimizer = with_optimizer ? Units(OptimizerOf(problem_, rank)) : 0;
  for (const int id : ids) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    RowBuilder before;
    RowBuilder behind;
    before.Add(1, node.start).Add(-1, first);
    behind.Add(1, program_.objective).Add(-1, node.start).Add(-static_cast<double>(optimizer));
    if (span) behind.Add(1, first);
    RowBuilder end = behind;
    end.Add(-1, DurationOf(node)).Finish(&program_);
    // Of a B, the least: where it is fused, its W is in it and counted below.
    behind.Add(-1, node.kind == kB ? Linear{.constant = double(node.least)} : DurationOf(node));
    for (const int other : ids) {
      if (other == id) continue;
      const auto least = static_cast<double>(nodes_[static_cast<size_t>(other)].least);
      before.Add(-least, Before(other, id));
      behind.Add(-least, Before(id, other));
    }
    before.Finish(&program_);
    behind.Finish(&program_);
  }
}

TimeNs ExactModel::BoundOf(double program_bound) const {
  const double sure = program_bound - 1e-3;  // the solver's tolerance
  if (exact_unit_) return static_cast<TimeNs>(std::ceil(sure)) * unit_ + constant_;
  return static_cast<TimeNs>(std::floor(sure * static_cast<double>(unit_))) + constant_;
}

}  // namespace spiritlevel
