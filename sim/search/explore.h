// Exploration: policies and wave templates with numbers drawn at random and around the best so far,
// each made into a plan and decoded. What it finds is where local search begins.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sim/search/decoder.h"
#include "sim/search/plan.h"
#include "sim/search/policy.h"
#include "sim/search/waves.h"

namespace spiritlevel {

struct Candidate {
  TimeNs value = Decoder::kInfeasible;
  Plan plan;
};

// The few best of different values, the best first.
class Candidates {
 public:
  void Offer(TimeNs value, const Plan& plan);
  bool empty() const { return kept_.empty(); }
  const Candidate& best() const { return kept_.front(); }
  const std::vector<Candidate>& all() const { return kept_; }
  // The i-th best, or the last there is.
  const Candidate& at(size_t i) const { return kept_[std::min(i, kept_.size() - 1)]; }

 private:
  static constexpr size_t kMost = 10;
  std::vector<Candidate> kept_;
};

class Explorer {
 public:
  Explorer(const SearchProblem& problem, Decoder& decoder, uint64_t seed);

  // A plan with its best gap to fill, as far as a few values tell; into candidates() if feasible.
  void Offer(Plan plan);
  // One policy and one wave template.
  void Step();

  const Candidates& candidates() const { return candidates_; }

 private:
  TimeNs FindGap(Plan* plan);
  double DrawReach();
  Policy DrawPolicy();
  Policy NudgedPolicy();
  Waves DrawWaves();
  Waves NudgedWaves();
  void TryPolicy();
  void TryWaves();
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  bool Chance(double p) { return Between(0, 1) < p; }

  SearchProblem problem_;
  Decoder& decoder_;
  std::mt19937_64 random_;
  ListScheduler scheduler_;
  Plan empty_;
  Candidates candidates_;

  // What numbers are drawn around.
  double most_in_flight_ = 1;  // micro-batches that fit on the first rank
  double grid_ = 0;            // a forward, a backward and the way there and back of the slowest
  double work_ = 0;            // of a micro-batch on the busiest rank, ns
  double pace_ = 1;

  int64_t policies_ = 0;
  int64_t waves_ = 0;
  Policy best_policy_;
  TimeNs best_policy_value_ = Decoder::kInfeasible;
  Waves best_waves_;
  TimeNs best_waves_value_ = Decoder::kInfeasible;
};

}  // namespace spiritlevel
