#include "sim/gradient_plan.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace spiritlevel {
namespace {

bool FillsGradients(Pass pass) { return pass == Pass::kW || pass == Pass::kBW; }

// Of each op of `ops`, is it the last of its stage to add to the stage's gradients?
std::vector<bool> LastOfStages(std::span<const Op> ops, int stages) {
  std::vector<bool> last(ops.size(), false);
  std::vector<bool> seen(static_cast<size_t>(stages), false);
  for (size_t i = ops.size(); i-- > 0;) {
    if (!FillsGradients(ops[i].pass) || seen[ops[i].stage]) continue;
    seen[ops[i].stage] = true;
    last[i] = true;
  }
  return last;
}

bool InPair(std::span<const Op> ops, size_t i) {
  return ops[i].overlaps_next || (i > 0 && ops[i - 1].overlaps_next);
}

// Where the run of W's of one stage begins that ends with op `last`.
size_t RunBegin(std::span<const Op> ops, size_t last, WeightGrads weight_grads) {
  if (weight_grads == WeightGrads::kByMicroBatch || ops[last].pass != Pass::kW) return last;
  size_t begin = last;
  while (begin > 0 && ops[begin - 1].pass == Pass::kW && ops[begin - 1].stage == ops[last].stage) {
    --begin;
  }
  return begin;
}

std::vector<Step> StepsOf(std::span<const Op> ops, const Costs& costs, WeightGrads weight_grads) {
  const std::vector<bool> last = LastOfStages(ops, costs.num_stages());
  std::vector<Step> steps;
  for (size_t i = 0; i < ops.size(); ++i) {
    steps.push_back({.op = static_cast<int32_t>(i)});
    if (ops[i].overlaps_next) {
      ++i;
      continue;
    }
    const auto parts = static_cast<int32_t>(costs.common().gradients.buckets[ops[i].stage].size());
    if (!last[i] || InPair(ops, i) || parts < 2) continue;
    const size_t begin = RunBegin(ops, i, weight_grads);
    steps.resize(steps.size() - (i + 1 - begin));
    for (int32_t part = 0; part < parts; ++part) {
      for (size_t op = begin; op <= i; ++op) {
        steps.push_back({static_cast<int32_t>(op), {.index = part, .count = parts}});
      }
    }
  }
  return steps;
}

}  // namespace

bool HasGradientSums(const Schedule& schedule, const Costs& costs) {
  const GradientSums& sums = costs.common().gradients;
  if (!sums.buckets.empty()) return true;
  if (!sums.twins.empty() && !schedule.one_rank_per_stage()) return true;
  return !sums.tied.empty() && schedule.one_rank_per_stage() &&
         schedule.rank_of(0, 0) != schedule.rank_of(schedule.num_stages() - 1, 0);
}

std::vector<std::vector<Step>> StepsByBucket(const Schedule& schedule, const Costs& costs,
                                             WeightGrads weight_grads) {
  std::vector<std::vector<Step>> steps;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    steps.push_back(StepsOf(schedule.ops(rank), costs, weight_grads));
  }
  return steps;
}

void GradientPlan::Write() {
  FindPlaces();
  FindExchanges();
  const int ranks = program_.num_ranks();
  program_.gradient_sums_ = {0};
  for (int rank = 0; rank < ranks; ++rank) {
    program_.gradient_sums_.push_back(program_.gradient_sums_.back() + NumSums(rank));
  }
  const size_t first = program_.reductions_.size();
  program_.reductions_.resize(first + static_cast<size_t>(program_.num_iterations()) *
                                          static_cast<size_t>(program_.gradient_sums_.back()));
  lanes_.resize(2 * static_cast<size_t>(ranks));
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].rank = static_cast<int>(i) % ranks;
  for (int i = 0; i < program_.num_iterations(); ++i) WriteIteration(i);
  for (Lane& lane : lanes_) {
    if (!lane.nodes.empty()) program_.lanes_.push_back(std::move(lane));
  }
}

// Whatever adds to a stage's gradients completes all its buckets as far as is known, until what
// comes after it does.
void GradientPlan::FindPlaces() {
  for (int rank = 0; rank < program_.num_ranks(); ++rank) {
    std::vector<std::vector<NodeId>>& of_rank = places_.emplace_back();
    for (const int stage : program_.stages_of(rank)) {
      const size_t buckets = has_buckets() ? costs_.common().gradients.buckets[stage].size() : 1;
      of_rank.emplace_back(buckets, 0);
    }
    const NodeId begin = program_.rank_begin(rank);
    for (NodeId id = begin; id < program_.iteration_begin(rank, 1); ++id) {
      const Node& node = program_.nodes()[id];
      const auto fills = [&](const Op& op) {
        if (!FillsGradients(op.pass)) return;
        std::vector<NodeId>& places = of_rank[program_.chunk_of(rank, op.stage)];
        if (node.kind == NodeKind::kPart) {
          places[program_.part(node).index] = id - begin;
        } else {
          std::fill(places.begin(), places.end(), id - begin);
        }
      };
      if (RunsOps(node.kind)) fills(node.op);
      if (node.kind == NodeKind::kPair) fills(program_.second_op(node));
    }
  }
}

void GradientPlan::AddExchange(Exchange exchange) {
  for (size_t i = 0; i < exchange.ranks.size(); ++i) {
    const int rank = exchange.ranks[i];
    const auto& places = places_[rank][program_.chunk_of(rank, exchange.stages[i])];
    exchange.ready = std::max(exchange.ready, *std::max_element(places.begin(), places.end()));
  }
  exchanges_.push_back(std::move(exchange));
}

// All lanes have them in one order, so that no two ranks wait for each other.
void GradientPlan::FindExchanges() {
  const GradientSums& sums = costs_.common().gradients;
  const bool one_rank = schedule_.one_rank_per_stage();
  if (!sums.twins.empty() && !one_rank) {
    for (int stage = 0; stage < program_.num_stages(); ++stage) {
      Exchange twins{
          .kind = NodeKind::kTwinSum, .sum = sums.twins[stage], .ranks = {}, .stages = {}};
      for (int rank = 0; rank < program_.num_ranks(); ++rank) {
        const std::span<const int> held = program_.stages_of(rank);
        if (!std::binary_search(held.begin(), held.end(), stage)) continue;
        twins.ranks.push_back(rank);
        twins.stages.push_back(stage);
      }
      if (twins.ranks.size() > 1) AddExchange(std::move(twins));
    }
  }
  const int last_stage = program_.num_stages() - 1;
  if (!sums.tied.empty() && one_rank &&
      schedule_.rank_of(0, 0) != schedule_.rank_of(last_stage, 0)) {
    AddExchange({.kind = NodeKind::kTiedSum,
                 .sum = sums.tied.front(),
                 .ranks = {schedule_.rank_of(0, 0), schedule_.rank_of(last_stage, 0)},
                 .stages = {0, last_stage}});
  }
  std::stable_sort(exchanges_.begin(), exchanges_.end(),
                   [](const Exchange& a, const Exchange& b) { return a.ready < b.ready; });
}

int32_t GradientPlan::NumSums(int rank) const {
  int32_t count = 0;
  if (has_buckets()) {
    for (const auto& places : places_[rank]) count += static_cast<int32_t>(places.size());
  }
  for (const Exchange& exchange : exchanges_) {
    count += static_cast<int32_t>(std::count(exchange.ranks.begin(), exchange.ranks.end(), rank));
  }
  return count;
}

// What is dropped before an iteration is run again stands before the rest of it.
NodeId GradientPlan::NodeAt(int rank, int iteration, NodeId place) const {
  return program_.iteration_begin(rank, iteration + 1) - program_.nodes_per_iteration_[rank] +
         place;
}

void GradientPlan::WriteIteration(int iteration) {
  const int ranks = program_.num_ranks();
  next_.clear();
  sums_of_.assign(static_cast<size_t>(ranks), {});
  for (int rank = 0; rank < ranks; ++rank) {
    next_.push_back(program_.gradient_sums_begin(rank, iteration));
    if (has_buckets()) WriteBuckets(rank, iteration, lanes_[rank]);
  }
  for (const Exchange& exchange : exchanges_) WriteExchange(exchange, iteration);
}

void GradientPlan::WriteBuckets(int rank, int iteration, Lane& lane) {
  std::vector<std::tuple<NodeId, int32_t, int32_t>> order;  // place, stage, bucket
  const std::vector<int>& stages = program_.stages_of_[rank];
  for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
    const std::vector<NodeId>& places = places_[rank][chunk];
    for (size_t b = 0; b < places.size(); ++b) {
      order.emplace_back(places[b], stages[chunk], static_cast<int32_t>(b));
    }
  }
  std::sort(order.begin(), order.end());
  for (const auto& [place, stage, bucket] : order) {
    const GradientSum& sum = costs_.common().gradients.buckets[stage][bucket].sum;
    const int32_t index = next_[rank]++;
    const NodeId node = program_.reduction_node(index);
    program_.reductions_[index] = {.rank = rank,
                                   .collective = static_cast<int32_t>(program_.collectives_.size()),
                                   .kind = NodeKind::kBucketSum,
                                   .stage = stage,
                                   .bucket = bucket};
    program_.collectives_.push_back(
        {.members = {node}, .duration = sum.duration, .bytes = sum.bytes});
    program_.edges_.push_back({.from = NodeAt(rank, iteration, place), .to = node});
    lane.nodes.push_back(node);
    sums_of_[rank].push_back(index);
    HoldBackTail(rank, iteration, node);
  }
}

void GradientPlan::WriteExchange(const Exchange& exchange, int iteration) {
  Collective collective{
      .members = {}, .duration = exchange.sum.duration, .bytes = exchange.sum.bytes};
  const auto id = static_cast<int32_t>(program_.collectives_.size());
  for (size_t i = 0; i < exchange.ranks.size(); ++i) {
    const int rank = exchange.ranks[i];
    const int32_t index = next_[rank]++;
    const NodeId node = program_.reduction_node(index);
    program_.reductions_[index] = {
        .rank = rank, .collective = id, .kind = exchange.kind, .stage = exchange.stages[i]};
    collective.members.push_back(node);
    WaitForStage(rank, exchange.stages[i], iteration, node);
    lanes_[static_cast<size_t>(program_.num_ranks() + rank)].nodes.push_back(node);
    HoldBackTail(rank, iteration, node);
  }
  program_.collectives_.push_back(std::move(collective));
}

// For its buckets' sums over the replicas, or where there are none for what made the gradients.
void GradientPlan::WaitForStage(int rank, int32_t stage, int iteration, NodeId sum) {
  if (!has_buckets()) {
    const NodeId place = places_[rank][program_.chunk_of(rank, stage)].front();
    program_.edges_.push_back({.from = NodeAt(rank, iteration, place), .to = sum});
    return;
  }
  for (const int32_t index : sums_of_[rank]) {
    if (program_.reductions_[index].stage != stage) continue;
    program_.edges_.push_back({.from = program_.reduction_node(index), .to = sum});
  }
}

// The barrier or, without one, the rank's own step; and what a post-validation judges.
void GradientPlan::HoldBackTail(int rank, int iteration, NodeId sum) {
  const NodeId tail = program_.iteration_begin(rank, iteration + 1) - nodes_in_tail_;
  program_.edges_.push_back({.from = sum, .to = tail});
  if (!IsPostValidation(program_.tail())) return;
  const NodeId validated = program_.reduction_node(program_.reduction_of(rank, iteration));
  program_.edges_.push_back({.from = sum, .to = validated});
}

}  // namespace spiritlevel
