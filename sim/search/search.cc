#include "sim/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <numeric>
#include <thread>
#include <tuple>

#include "base/check.h"
#include "sim/analysis/summary.h"
#include "sim/evaluate.h"
#include "sim/schedule.h"
#include "sim/search/anneal.h"
#include "sim/search/bound.h"
#include "sim/search/explore.h"
#include "sim/search/stop_sign.h"

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

  bool Stopped() const {
    return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
  }

  double Used() const {
    if (Stopped()) return 1;
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
    OfferSeeds(budget);
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

  // All of them with a budget by count, or the answer would hang on more than the number.
  bool IsOver(const Budget& budget) const {
    return options_.evaluations > 0 ? budget.Stopped() : budget.Used() >= 1;
  }

  void OfferSeeds(const Budget& budget) {
    for (const TurnKind kind : {TurnKind::kB, TurnKind::kBW, TurnKind::kW}) {
      explorer_.Offer(SerialPlan(problem_, kind));
    }
    for (const Orders& orders : options_.seeds) {
      Plan plan;
      if (IsOver(budget)) return;
      if (!ReadPlan(problem_, orders, &plan)) continue;
      explorer_.Offer(plan);
      for (std::vector<Turn>& turns : plan.turns) std::erase(turns, kTurnW);
      if (IsOver(budget)) return;
      explorer_.Offer(plan);
      if (IsOver(budget)) return;
      explorer_.Offer(WithAll(TurnKind::kB, plan));
      if (IsOver(budget)) return;
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

// How good an order is: of two as fast the one that needs less memory on its fullest rank, then
// less in all.
struct Merit {
  TimeNs value = Decoder::kInfeasible;
  Bytes fullest = 0;
  Int128 all = 0;

  friend bool operator<(const Merit& a, const Merit& b) {
    return std::tie(a.value, a.fullest, a.all) < std::tie(b.value, b.fullest, b.all);
  }
};

TimeNs ValueOf(const Evaluator::Result& r, Objective objective) {
  switch (objective) {
    case Objective::kSpan:
      return r.max_rank_span;
    case Objective::kMakespan:
      return r.makespan;
    case Objective::kStep:
      return r.period;
  }
  return Decoder::kInfeasible;
}

// Of an order as it is, W's where they stand, if it fits the problem.
Merit MeritOf(const SearchProblem& problem, const Orders& orders) {
  const Schedule schedule(orders);
  if (!IsPlacedAs(problem.placement, schedule) ||
      schedule.num_micro_batches() != problem.micro_batches()) {
    return {};
  }
  Evaluator evaluator(*problem.costs);
  const Evaluator::Result& r = evaluator.Evaluate(schedule, problem.tail, kPeriodIterations);
  Merit merit{.value = ValueOf(r, problem.objective)};
  for (int rank = 0; rank < problem.placement.ranks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (r.peak_bytes[i] > problem.limits[i]) return {};
    merit.fullest = std::max(merit.fullest, r.peak_bytes[i]);
    merit.all += r.peak_bytes[i];
  }
  return merit;
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

// The best seed as it is, and how good that is; null where none fits, or none was looked at in
// time.
struct BestSeed {
  const Orders* orders = nullptr;
  Merit merit{};
};

BestSeed FindBestSeed(const SearchProblem& problem, const SearchOptions& options,
                      Clock::time_point begin) {
  StopSign stop{.asked = options.stop};
  if (options.evaluations == 0) {
    stop.at = begin + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(options.seconds));
  }
  BestSeed best;
  for (const Orders& seed : options.seeds) {
    if (stop.IsUp()) break;
    const Merit merit = MeritOf(problem, seed);
    if (merit < best.merit) best = {&seed, merit};
  }
  return best;
}

// Searches by themselves, on as many threads.
class Islands {
 public:
  Islands(const SearchProblem& problem, const SearchOptions& options, int threads)
      : threads_(threads) {
    // With a budget by count as many as are asked for, whatever the cores, or the answer would
    // depend on them.
    const int islands = options.evaluations > 0 ? options.islands : threads;
    for (int i = 0; i < islands; ++i) {
      const int64_t share = options.evaluations / islands + (i < options.evaluations % islands);
      all_.push_back(std::make_unique<Island>(problem, options, i, std::max<int64_t>(1, share)));
    }
  }

  void Run() {
    std::atomic<size_t> next = 0;
    std::vector<std::exception_ptr> errors(all_.size());
    const auto work = [&] {
      for (size_t i = next++; i < all_.size(); i = next++) {
        try {
          all_[i]->Run();
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> helpers;
      const int at_once = std::min(threads_, static_cast<int>(all_.size()));
      for (int i = 1; i < at_once; ++i) helpers.emplace_back(work);
      work();
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  int64_t evaluations() const {
    int64_t sum = 0;
    for (const std::unique_ptr<Island>& island : all_) sum += island->evaluations();
    return sum;
  }

  // Of equals the first, whoever was ready first.
  Island& Best() {
    Island* best = all_.front().get();
    for (const std::unique_ptr<Island>& island : all_) {
      if (island->best().value < best->best().value) best = island.get();
    }
    return *best;
  }

 private:
  int threads_;
  std::vector<std::unique_ptr<Island>> all_;
};

// Nothing is left to search in. Of a budget by count there always is, or the answer would hang on
// more than the number.
bool IsOver(const SearchOptions& options) {
  const bool stopped = options.stop != nullptr && options.stop->load();
  return stopped || (options.evaluations == 0 && options.seconds <= 0);
}

// More than there are cores would take each other's time.
int ThreadsFor(const SearchOptions& options) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return options.threads > 0 ? std::min(options.threads, cores) : cores;
}

}  // namespace

SearchAnswer Search(const SearchProblem& problem, const SearchOptions& options) {
  CheckProblem(problem);
  const Clock::time_point begin = Clock::now();
  const BestSeed seed = FindBestSeed(problem, options, begin);
  SearchOptions rest = options;
  rest.seconds -= SecondsSince(begin);
  if (seed.orders != nullptr && IsOver(rest)) {
    return {.orders = *seed.orders, .value = seed.merit.value, .seconds = SecondsSince(begin)};
  }
  Islands islands(problem, rest, ThreadsFor(options));
  islands.Run();
  Island& best = islands.Best();
  SPIRITLEVEL_CHECK(best.best().value != Decoder::kInfeasible,
                    "where a micro-batch fits, they run one after the other");
  SearchAnswer answer{.orders = best.OrdersOfBest(),
                      .value = best.best().value,
                      .evaluations = islands.evaluations()};
  if (seed.orders != nullptr && seed.merit.value <= answer.value) {
    const bool better = seed.merit.value < answer.value;
    if (better || seed.merit < MeritOf(problem, answer.orders)) {
      answer.value = seed.merit.value;
      answer.orders = *seed.orders;
    }
  }
  answer.seconds = SecondsSince(begin);
  if (options.observer) options.observer(1, answer.value);
  return answer;
}

}  // namespace spiritlevel
