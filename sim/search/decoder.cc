#include "sim/search/decoder.h"

#include <algorithm>

#include "base/check.h"
#include "sim/evaluate.h"

namespace spiritlevel {
namespace {

constexpr TimeNs kUnknown = -1;

}  // namespace

Decoder::Decoder(const SearchProblem& problem)
    : problem_(problem),
      ranks_count_(problem.placement.ranks),
      chunks_count_(problem.placement.stages_per_rank),
      micro_batches_(problem.micro_batches()) {
  SPIRITLEVEL_CHECK(chunks_count_ <= kMaxSearchedChunks, "a turn fits into a byte");
  const Costs& costs = *problem.costs;
  const int stages = problem.placement.num_stages();
  launch_ = costs.common().launch;
  latency_ = costs.common().hop.latency;
  busy_ = costs.common().hop.busy;
  const int rows = costs.varies_by_micro_batch() ? micro_batches_ : 1;
  cost_stride_ = costs.varies_by_micro_batch() ? kNumPasses : 0;
  for (int stage = 0; stage < stages; ++stage) {
    for (int i = 0; i < rows; ++i) {
      const StageCost& c = costs.of(stage, i);
      const Bytes more_for_w = std::max<Bytes>(0, c.weight_state - c.activation);
      const auto add = [&](Pass pass, Bytes grow, Bytes shrink) {
        const Bytes transient = c.transient[static_cast<size_t>(pass)];
        costs_.push_back({c.duration(pass) + launch_, grow + transient, shrink + transient});
      };
      add(Pass::kF, c.activation, 0);
      add(Pass::kB, more_for_w, c.activation + more_for_w - c.weight_state);
      add(Pass::kW, 0, c.weight_state);
      add(Pass::kBW, 0, c.activation);
    }
  }
  const size_t places = static_cast<size_t>(stages) * static_cast<size_t>(micro_batches_);
  arrivals_.resize(2 * places);
  links_.resize(static_cast<size_t>(ranks_count_) * static_cast<size_t>(ranks_count_));
  ranks_.resize(static_cast<size_t>(ranks_count_));
  pending_.resize(ranks_.size());
  recorded_.resize(ranks_.size());
  log_.resize(ranks_.size());
  logged_at_.resize(2 * places);
  const auto at = [&](int stage, bool backward) {
    return &arrivals_[(backward ? places : 0) +
                      static_cast<size_t>(stage) * static_cast<size_t>(micro_batches_)];
  };
  const size_t row = static_cast<size_t>(rows) * kNumPasses;
  for (int rank = 0; rank < ranks_count_; ++rank) {
    std::vector<int> held;
    for (int chunk = 0; chunk < chunks_count_; ++chunk) {
      const int stage = problem.placement.stage_of(rank, chunk);
      held.push_back(stage);
      Chunk c{.stage = stage, .costs = &costs_[static_cast<size_t>(stage) * row]};
      const auto link = [&](int reader) {
        return reader == rank ? nullptr
                              : &links_[static_cast<size_t>(rank * ranks_count_ + reader)];
      };
      if (stage > 0) {
        c.forward_in = at(stage, false);
        c.backward_out = at(stage - 1, true);
        c.backward_reader = problem.placement.rank_of(stage - 1);
        c.backward_link = link(c.backward_reader);
      }
      if (stage + 1 < stages) {
        c.backward_in = at(stage, true);
        c.forward_out = at(stage + 1, false);
        c.forward_reader = problem.placement.rank_of(stage + 1);
        c.forward_link = link(c.forward_reader);
      }
      chunks_.push_back(c);
    }
    room_.push_back(problem.room(rank));
    tail_.push_back(costs.optimizer(held));
    pending_[static_cast<size_t>(rank)].resize(static_cast<size_t>(chunks_count_) *
                                               static_cast<size_t>(micro_batches_));
  }
}

void Decoder::Reset(const Plan& plan) {
  std::fill(arrivals_.begin(), arrivals_.end(), kUnknown);
  if (busy_ > 0) std::fill(links_.begin(), links_.end(), 0);
  for (Chunk& chunk : chunks_) chunk.forwards = chunk.backwards = 0;
  runnable_.clear();
  for (int rank = ranks_count_ - 1; rank >= 0; --rank) {
    const std::vector<Turn>& turns = plan.turns[static_cast<size_t>(rank)];
    ranks_[static_cast<size_t>(rank)] = {.next = turns.data(), .end = turns.data() + turns.size()};
    runnable_.push_back(rank);
  }
}

// False: it does not fit into memory.
template <bool kRecord>
bool Decoder::RunW(int rank) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  const PendingW& w = pending_[static_cast<size_t>(rank)][r.w_head++];
  if (r.live > room_[static_cast<size_t>(rank)] - w.cost->grow) return false;
  r.free += w.cost->duration;
  r.live += w.cost->grow - w.cost->shrink;
  if constexpr (kRecord) {
    recorded_[static_cast<size_t>(rank)].push_back(
        {.micro_batch = w.micro_batch, .stage = static_cast<uint16_t>(w.stage), .pass = Pass::kW});
  }
  return true;
}

void Decoder::Deliver(TimeNs* out, int reader, TimeNs* link, int rank, TimeNs end) {
  TimeNs arrival = end;
  if (link != nullptr) {
    if (busy_ > 0) arrival = *link = std::max(*link, end) + busy_;
    arrival += latency_;
  }
  *out = arrival;
  if (reader == rank) return;
  Rank& other = ranks_[static_cast<size_t>(reader)];
  if (other.waits_for != out) return;
  other.waits_for = nullptr;
  runnable_.push_back(reader);
}

// As far as its inputs reach. False: it does not fit into memory.
template <bool kRecord>
bool Decoder::RunRank(int rank, const Plan& plan) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  Chunk* const chunks = &chunks_[static_cast<size_t>(rank * chunks_count_)];
  const Bytes room = room_[static_cast<size_t>(rank)];
  const int32_t* const gap_permille = &plan.gap_permille[Plan::gap(rank, false)];
  PendingW* const pending = pending_[static_cast<size_t>(rank)].data();
  for (; r.next != r.end; ++r.next) {
    const TurnKind kind = KindOf(*r.next);
    if (kind == TurnKind::kW) {
      if (r.w_head != r.w_tail && !RunW<kRecord>(rank)) return false;
      continue;
    }
    Chunk& chunk = chunks[ChunkOf(*r.next)];
    const bool forward = kind == TurnKind::kF;
    int32_t& place = forward ? chunk.forwards : chunk.backwards;
    if (!forward && place >= chunk.forwards) return true;  // its own forward comes later: stuck
    const TimeNs* const in = forward ? chunk.forward_in : chunk.backward_in;
    TimeNs arrival = 0;
    if (in != nullptr) {
      arrival = in[place];
      if (arrival == kUnknown) {
        r.waits_for = in + place;
        return true;
      }
    }
    const int32_t micro_batch = plan.order[static_cast<size_t>(place)];
    const OpCost* const costs = chunk.costs + static_cast<size_t>(micro_batch) * cost_stride_;
    const OpCost& cost = costs[static_cast<size_t>(forward                ? Pass::kF
                                                   : kind == TurnKind::kB ? Pass::kB
                                                                          : Pass::kBW)];
    while (r.live > room - cost.grow) {
      if (r.w_head == r.w_tail || !RunW<kRecord>(rank)) return false;
    }
    while (r.w_head != r.w_tail) {
      const TimeNs w = pending[r.w_head].cost->duration;
      const TimeNs gap = arrival - r.free;
      if (gap < w && (gap <= 0 || 1000 * gap <= gap_permille[forward ? 0 : 1] * w)) break;
      if (!RunW<kRecord>(rank)) return false;
    }
    const TimeNs start = std::max(r.free, arrival);
    if (r.first < 0) r.first = start + launch_;
    r.live += cost.grow - cost.shrink;
    r.free = start + cost.duration;
    if constexpr (kRecord) {
      recorded_[static_cast<size_t>(rank)].push_back({.micro_batch = micro_batch,
                                                      .stage = static_cast<uint16_t>(chunk.stage),
                                                      .pass = forward                ? Pass::kF
                                                              : kind == TurnKind::kB ? Pass::kB
                                                                                     : Pass::kBW});
      const auto turn = static_cast<int32_t>(r.next - plan.turns[static_cast<size_t>(rank)].data());
      log_[static_cast<size_t>(rank)].push_back({.turn = turn,
                                                 .stage = chunk.stage,
                                                 .place = place,
                                                 .forward = forward,
                                                 .waited = start == arrival && start > 0});
      logged_at_[LogPlace(chunk.stage, forward, place)] =
          static_cast<int32_t>(log_[static_cast<size_t>(rank)].size()) - 1;
    }
    if (forward) {
      if (chunk.forward_out != nullptr) {
        Deliver(chunk.forward_out + place, chunk.forward_reader, chunk.forward_link, rank, r.free);
      }
    } else {
      if (kind == TurnKind::kB) {
        pending[r.w_tail++] = {&costs[static_cast<size_t>(Pass::kW)], chunk.stage, micro_batch};
      }
      if (chunk.backward_out != nullptr) {
        Deliver(chunk.backward_out + place, chunk.backward_reader, chunk.backward_link, rank,
                r.free);
      }
    }
    ++place;
  }
  while (r.w_head != r.w_tail) {
    if (!RunW<kRecord>(rank)) return false;
  }
  return true;
}

template <bool kRecord>
bool Decoder::Play(const Plan& plan) {
  Reset(plan);
  while (!runnable_.empty()) {
    const int rank = runnable_.back();
    runnable_.pop_back();
    if (!RunRank<kRecord>(rank, plan)) return false;
  }
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.next == r.end; });
}

TimeNs Decoder::Decode(const Plan& plan) {
  ++num_attempts_;
  if (!Play<false>(plan)) return kInfeasible;
  return Value(plan);
}

TimeNs Decoder::Value(const Plan& plan) {
  TimeNs value = 0;
  if (problem_.objective == Objective::kSpan) {
    for (const Rank& r : ranks_) value = std::max(value, r.free - r.first);
    return value;
  }
  const bool barrier = problem_.tail == Tail::kBarrier;
  if (problem_.objective == Objective::kStep && !barrier) return Period(plan);
  TimeNs last = 0;
  for (const Rank& r : ranks_) last = std::max(last, r.free);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const TimeNs from = barrier ? last + problem_.costs->common().barrier : ranks_[rank].free;
    value = std::max(value, from + tail_[rank]);
  }
  return value;
}

// Iterations interlock, so it takes several to see it.
TimeNs Decoder::Period(const Plan& plan) {
  return Evaluator(*problem_.costs)
      .Evaluate(Schedule(OrdersOf(plan)), problem_.tail, /*iterations=*/4)
      .period;
}

size_t Decoder::LogPlace(int stage, bool forward, int32_t place) const {
  const auto stages = static_cast<size_t>(problem_.placement.num_stages());
  return (static_cast<size_t>(stage) + (forward ? 0 : stages)) *
             static_cast<size_t>(micro_batches_) +
         static_cast<size_t>(place);
}

void Decoder::FindCriticalTurns(const Plan& plan, std::vector<PlacedTurn>* turns) {
  turns->clear();
  OrdersOf(plan);
  const bool of_span = problem_.objective == Objective::kSpan;
  int rank = 0;
  for (int i = 1; i < ranks_count_; ++i) {
    if ((of_span ? span(i) - span(rank) : end(i) - end(rank)) > 0) rank = i;
  }
  auto at = static_cast<int32_t>(log_[static_cast<size_t>(rank)].size()) - 1;
  while (at >= 0) {
    const LoggedTurn& logged = log_[static_cast<size_t>(rank)][static_cast<size_t>(at)];
    turns->push_back({rank, logged.turn});
    const int from = logged.forward ? logged.stage - 1 : logged.stage + 1;
    if (!logged.waited || from < 0 || from == problem_.placement.num_stages()) {
      --at;
      continue;
    }
    rank = problem_.placement.rank_of(from);
    at = logged_at_[LogPlace(from, logged.forward, logged.place)];
  }
}

Orders Decoder::OrdersOf(const Plan& plan) {
  for (auto& row : recorded_) row.clear();
  for (auto& row : log_) row.clear();
  const bool feasible = Play<true>(plan);
  SPIRITLEVEL_CHECK(feasible, "orders are asked for of a plan that was found feasible");
  return recorded_;
}

}  // namespace spiritlevel
