#include "sim/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "sim/analysis/summary.h"
#include "sim/evaluate.h"
#include "sim/schedule.h"
#include "sim/search/anneal.h"
#include "sim/search/bound.h"
#include "sim/search/explore.h"

namespace spiritlevel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShareOfExploring = 0.6;
constexpr double kShareOfExploringIfSmall = 0.3;
// Small problems are got to the bottom of quickly, and then it is other beginnings that help, and
// more heat.
constexpr int kMostTurnsIfSmall = 150;
constexpr double kHeatIfSmall = 3;

// So many of the best are annealed, in this share of the time.
struct Round {
  size_t starts;
  double share;
};
constexpr std::array<Round, 3> kRounds = {{{8, 0.3}, {3, 0.3}, {1, 0.4}}};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How much of a budget is used up, by time or by count.
class Budget {
 public:
  Budget(const SearchOptions& options, int64_t evaluations, const Decoder& decoder)
      : options_(options),
        evaluations_(evaluations),
        decoder_(decoder),
        begin_(Clock::now()),
        first_(decoder.num_attempts()) {}

  double Used() const {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) return 1;
    if (options_.evaluations > 0) {
      return static_cast<double>(decoder_.num_attempts() - first_) /
             static_cast<double>(evaluations_);
    }
    return options_.seconds > 0 ? SecondsSince(begin_) / options_.seconds : 1;
  }

 private:
  const SearchOptions& options_;
  int64_t evaluations_;
  const Decoder& decoder_;
  Clock::time_point begin_;
  int64_t first_;
};

// A backward as one op where it costs no more and its gradient reaches nobody later.
bool FusesForFree(const SearchProblem& problem, int stage) {
  if (stage > 0) return false;
  const Costs& costs = *problem.costs;
  for (int i = 0; i < (costs.varies_by_micro_batch() ? costs.num_micro_batches() : 1); ++i) {
    const StageCost& c = costs.of(stage, i);
    if (c.fused_backward > c.input_grad + c.weight_grad) return false;
  }
  return true;
}

// How one micro-batch goes back through a rank's chunks in the least memory: as one op where that
// fits, else as two with the W as soon as it can.
void AddFrugalBackwards(const SearchProblem& problem, int rank, int micro_batch,
                        std::vector<Turn>* turns) {
  const Placement& placement = problem.placement;
  const auto cost_of = [&](int chunk) -> const StageCost& {
    return problem.costs->of(placement.stage_of(rank, chunk), micro_batch);
  };
  const Bytes room = problem.room(rank);
  Bytes live = 0;
  for (int c = 0; c < placement.stages_per_rank; ++c) live += cost_of(c).activation;
  for (int c = placement.stages_per_rank; c-- > 0;) {
    const bool fused = live <= room - cost_of(c).transient[static_cast<size_t>(Pass::kBW)];
    turns->push_back(MakeTurn(c, fused ? TurnKind::kBW : TurnKind::kB));
    if (!fused) turns->push_back(kTurnW);
    live -= cost_of(c).activation;
  }
}

// Micro-batch by micro-batch: if anything runs, one of these does. `backward` kW: in whichever form
// fits.
Plan SerialPlan(const SearchProblem& problem, TurnKind backward) {
  const Placement& placement = problem.placement;
  Plan plan{.order = std::vector<int32_t>(static_cast<size_t>(problem.micro_batches())),
            .turns = std::vector<std::vector<Turn>>(static_cast<size_t>(placement.ranks)),
            .gap_permille = std::vector<int32_t>(2 * static_cast<size_t>(placement.ranks), 0)};
  std::iota(plan.order.begin(), plan.order.end(), 0);
  for (int rank = 0; rank < placement.ranks; ++rank) {
    std::vector<Turn>& turns = plan.turns[static_cast<size_t>(rank)];
    for (int i = 0; i < problem.micro_batches(); ++i) {
      for (int c = 0; c < placement.stages_per_rank; ++c) {
        turns.push_back(MakeTurn(c, TurnKind::kF));
      }
      if (backward == TurnKind::kW) {
        AddFrugalBackwards(problem, rank, i, &turns);
        continue;
      }
      for (int c = placement.stages_per_rank; c-- > 0;) turns.push_back(MakeTurn(c, backward));
    }
  }
  return plan;
}

// One search by itself: exploring, then local search from the best few.
class Island {
 public:
  Island(const SearchProblem& problem, const SearchOptions& options, int number,
         int64_t evaluations)
      : problem_(problem),
        options_(options),
        number_(number),
        evaluations_(evaluations),
        decoder_(problem),
        explorer_(problem, decoder_, SeedOf(0)) {}

  void Run() {
    const Budget budget(options_, evaluations_, decoder_);
    OfferSeeds();
    const double share = IsSmall() ? kShareOfExploringIfSmall : kShareOfExploring;
    for (double used = budget.Used(); used < share; used = budget.Used()) {
      if (IsDone(explorer_.candidates())) break;
      explorer_.Step();
      if (!explorer_.candidates().empty()) Tell(used, explorer_.candidates().best().value);
    }
    if (explorer_.candidates().empty()) return;
    best_ = explorer_.candidates().best();
    if (best_.value > options_.lower_bound) Improve(budget);
  }

  const Candidate& best() const { return best_; }
  int64_t evaluations() const { return decoder_.num_attempts(); }
  Orders OrdersOfBest() { return decoder_.OrdersOf(best_.plan); }

 private:
  uint64_t SeedOf(int part) const {
    return options_.seed * 1'000'003 + static_cast<uint64_t>(number_) * 101 +
           static_cast<uint64_t>(part);
  }

  bool IsDone(const Candidates& candidates) const {
    return !candidates.empty() && candidates.best().value <= options_.lower_bound;
  }

  void OfferSeeds() {
    for (const TurnKind kind : {TurnKind::kB, TurnKind::kBW, TurnKind::kW}) {
      explorer_.Offer(SerialPlan(problem_, kind));
    }
    for (const Orders& orders : options_.seeds) {
      Plan plan;
      if (!ReadPlan(problem_, orders, &plan)) continue;
      explorer_.Offer(plan);
      for (std::vector<Turn>& turns : plan.turns) std::erase(turns, kTurnW);
      explorer_.Offer(plan);
      explorer_.Offer(WithAll(TurnKind::kB, plan));
      explorer_.Offer(WithAll(TurnKind::kBW, plan));
    }
  }

  // Every backward in one form, except that the first stage's may be one op for free.
  Plan WithAll(TurnKind kind, Plan plan) const {
    for (size_t rank = 0; rank < plan.turns.size(); ++rank) {
      for (Turn& turn : plan.turns[rank]) {
        if (!IsBackward(turn)) continue;
        const int stage = problem_.placement.stage_of(static_cast<int>(rank), ChunkOf(turn));
        turn = MakeTurn(ChunkOf(turn), FusesForFree(problem_, stage) ? TurnKind::kBW : kind);
      }
    }
    return plan;
  }

  void Improve(const Budget& budget) {
    Annealer annealer(problem_, decoder_, SeedOf(1));
    const double begin = budget.Used();
    if (begin >= 1) return;
    if (IsSmall()) {
      BeginOften(annealer, budget, begin);
    } else {
      Narrow(annealer, budget, begin);
    }
  }

  bool IsSmall() const {
    return 2 * problem_.placement.num_stages() * problem_.micro_batches() <= kMostTurnsIfSmall;
  }

  // From the best few in turn, every third time from the best of all so far.
  void BeginOften(Annealer& annealer, const Budget& budget, double begin) {
    constexpr int kRestarts = 18;
    for (int restart = 0; restart < kRestarts; ++restart) {
      annealer.SetKind(number_ + restart, kHeatIfSmall);
      const bool last = restart % 3 == 2;
      const Candidate& from = explorer_.candidates().at(static_cast<size_t>(restart));
      if (last) {
        annealer.Start(best_.plan, best_.value);
      } else {
        annealer.Start(from.plan, from.value);
      }
      const double length = (1 - begin) / kRestarts;
      AnnealUntil(annealer, budget, begin + restart * length, length);
      if (annealer.best_value() < best_.value) best_ = {annealer.best_value(), annealer.best()};
      if (best_.value <= options_.lower_bound) return;
    }
  }

  // Many beginnings for a short time, the best of what they come to for longer, and so on.
  void Narrow(Annealer& annealer, const Budget& budget, double begin) {
    const double all = 1 - begin;
    std::vector<Candidate> from = explorer_.candidates().all();
    int kind = number_;
    for (const Round& round : kRounds) {
      std::sort(from.begin(), from.end(),
                [](const Candidate& a, const Candidate& b) { return a.value < b.value; });
      if (from.size() > round.starts) from.resize(round.starts);
      const double length = all * round.share / static_cast<double>(from.size());
      for (Candidate& candidate : from) {
        annealer.SetKind(kind++, 1);
        annealer.Start(candidate.plan, candidate.value);
        AnnealUntil(annealer, budget, begin, length);
        begin += length;
        candidate = {annealer.best_value(), annealer.best()};
        if (candidate.value < best_.value) best_ = candidate;
        if (best_.value <= options_.lower_bound) return;
      }
    }
  }

  void AnnealUntil(Annealer& annealer, const Budget& budget, double begin, double length) {
    constexpr int kStepsBetweenLooks = 16;
    while (true) {
      const double used = budget.Used();
      const double heat = 1 - (used - begin) / length;
      // Rounding must not keep it a little above 0 for ever once the budget is used up.
      if (used >= 1 || heat <= 0 || annealer.best_value() <= options_.lower_bound) return;
      for (int i = 0; i < kStepsBetweenLooks; ++i) annealer.Step(heat);
      Tell(used, std::min(best_.value, annealer.best_value()));
    }
  }

  void Tell(double used, TimeNs best) const {
    if (number_ == 0 && options_.observer) options_.observer(used, best);
  }

  const SearchProblem& problem_;
  const SearchOptions& options_;
  int number_;
  int64_t evaluations_;
  Decoder decoder_;
  Explorer explorer_;
  Candidate best_;
};

bool IsPlacedAs(const Placement& placement, const Schedule& schedule) {
  if (schedule.num_ranks() != placement.ranks || !schedule.one_rank_per_stage() ||
      schedule.num_stages() != placement.num_stages()) {
    return false;
  }
  // F&B pairs may take less than their parts, which is not searched for and no bound knows.
  const std::span<const Op> ops = schedule.all_ops();
  if (std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.overlaps_next; })) {
    return false;
  }
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    if (schedule.rank_of(stage, 0) != placement.rank_of(stage)) return false;
  }
  return true;
}

// A seed as it is, W's where they stand, if it fits the problem.
TimeNs ValueOfSeed(const SearchProblem& problem, const Orders& orders) {
  const Schedule schedule(orders);
  if (!IsPlacedAs(problem.placement, schedule) ||
      schedule.num_micro_batches() != problem.micro_batches()) {
    return Decoder::kInfeasible;
  }
  Evaluator evaluator(*problem.costs);
  const Evaluator::Result& r = evaluator.Evaluate(schedule, problem.tail, kPeriodIterations);
  for (int rank = 0; rank < problem.placement.ranks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (r.peak_bytes[i] > problem.limits[i]) return Decoder::kInfeasible;
  }
  switch (problem.objective) {
    case Objective::kSpan:
      return r.max_rank_span;
    case Objective::kMakespan:
      return r.makespan;
    case Objective::kStep:
      return r.period;
  }
  return Decoder::kInfeasible;
}

void CheckProblem(const SearchProblem& problem) {
  const Placement& placement = problem.placement;
  SPIRITLEVEL_CHECK(problem.costs->num_stages() == placement.num_stages() &&
                        problem.limits.size() == static_cast<size_t>(placement.ranks),
                    "costs and limits are for the placement");
  if (placement.stages_per_rank > kMaxSearchedChunks) {
    throw InputError(
        fmt::format("{} stages a rank are more than a search looks at", placement.stages_per_rank),
        fmt::format("use at most {}", kMaxSearchedChunks));
  }
  RequireFeasible(problem);
}

}  // namespace

SearchAnswer Search(const SearchProblem& problem, const SearchOptions& options) {
  CheckProblem(problem);
  const Clock::time_point begin = Clock::now();
  const bool by_count = options.evaluations > 0;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : cores;
  // With a budget by count as many as are asked for, whatever the cores, or the answer would depend
  // on them.
  const int islands = by_count ? options.islands : threads;
  std::vector<std::unique_ptr<Island>> all;
  for (int i = 0; i < islands; ++i) {
    const int64_t share = options.evaluations / islands + (i < options.evaluations % islands);
    all.push_back(std::make_unique<Island>(problem, options, i, std::max<int64_t>(1, share)));
  }
  std::atomic<int> next = 0;
  std::vector<std::exception_ptr> errors(all.size());
  const auto work = [&] {
    for (int i = next++; i < islands; i = next++) {
      try {
        all[static_cast<size_t>(i)]->Run();
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < std::min(threads, islands); ++i) helpers.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  // Of equals the first, whoever was ready first.
  Island* best = all.front().get();
  SearchAnswer answer;
  for (const std::unique_ptr<Island>& island : all) {
    answer.evaluations += island->evaluations();
    if (island->best().value < best->best().value) best = island.get();
  }
  SPIRITLEVEL_CHECK(best->best().value != Decoder::kInfeasible,
                    "where a micro-batch fits, they run one after the other");
  answer.value = best->best().value;
  answer.orders = best->OrdersOfBest();
  for (const Orders& seed : options.seeds) {
    const TimeNs value = ValueOfSeed(problem, seed);
    if (value >= answer.value) continue;
    answer.value = value;
    answer.orders = seed;
  }
  answer.seconds = SecondsSince(begin);
  if (options.observer) options.observer(1, answer.value);
  return answer;
}

}  // namespace spiritlevel
