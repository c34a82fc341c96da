// The best order of a tiny problem by looking at all that make sense: an oracle with nothing in
// common with the bounds or the integer program.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/search/problem.h"

namespace spiritlevel {

// Plays time forward. Whenever a rank is free it starts an op whose input is there and which fits,
// or waits for the next input; having waited, it takes one that has just come, for it could have
// taken any other before. Each op thereby starts as early as its order lets it.
class BruteForce {
 public:
  static constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

  // `in_turn`: micro-batches pass each stage in the order of their numbers. No loss where they are
  // alike.
  BruteForce(const SearchProblem& problem, bool in_turn)
      : problem_(problem),
        costs_(*problem.costs),
        in_turn_(in_turn),
        micro_batches_(problem.micro_batches()),
        stages_(problem.placement.num_stages()) {
    for (int r = 0; r < ranks(); ++r) room_.push_back(problem.room(r));
  }

  // The least objective (span or makespan) below `limit`; kNever if there is none. Says nothing
  // where it gave_up().
  TimeNs Solve(TimeNs limit = kNever, size_t most_states = 20'000'000) {
    best_ = limit;
    most_states_ = most_states;
    found_ = false;
    const auto places = static_cast<size_t>(stages_ * micro_batches_);
    State s{.done = std::vector<char>(places, 0),
            .forward_in = std::vector<TimeNs>(places, kNever),
            .backward_in = std::vector<TimeNs>(places, kNever),
            .link = std::vector<TimeNs>(static_cast<size_t>(ranks() * ranks()), 0),
            .ranks = std::vector<Rank>(static_cast<size_t>(ranks()))};
    for (int i = 0; i < micro_batches_; ++i) {
      s.forward_in[At(0, i)] = 0;
      s.backward_in[At(stages_ - 1, i)] = 0;
    }
    for (int r = 0; r < ranks(); ++r) {
      s.ranks[size_t(r)].left = 0;
      for (int c = 0; c < problem_.placement.stages_per_rank; ++c) {
        for (int i = 0; i < micro_batches_; ++i) {
          s.ranks[size_t(r)].left += LeastForward(r, c, i) + LeastBackward(r, c, i);
        }
      }
    }
    Visit(s);
    return found_ ? best_ : kNever;
  }

  bool gave_up() const { return seen_.size() >= most_states_; }

 private:
  struct Rank {
    TimeNs decides_at = 0;
    TimeNs free = 0;
    TimeNs first = -1;
    TimeNs left = 0;  // least work
    Bytes live = 0;
  };
  struct State {
    std::vector<char> done;  // by stage and micro-batch: nothing, F, B, all
    std::vector<TimeNs> forward_in, backward_in;
    std::vector<TimeNs> link;
    std::vector<Rank> ranks;
  };

  int ranks() const { return problem_.placement.ranks; }
  size_t At(int stage, int i) const { return static_cast<size_t>(stage * micro_batches_ + i); }
  const StageCost& Cost(int rank, int chunk, int i) const {
    return costs_.of(problem_.placement.stage_of(rank, chunk), i);
  }
  TimeNs launch() const { return costs_.common().launch; }
  TimeNs LeastForward(int r, int c, int i) const { return Cost(r, c, i).forward + launch(); }
  TimeNs LeastBackward(int r, int c, int i) const {
    const StageCost& cost = Cost(r, c, i);
    return std::min(cost.input_grad + cost.weight_grad + 2 * launch(),
                    cost.fused_backward + launch());
  }
  TimeNs LeastW(int r, int c, int i) const { return Cost(r, c, i).weight_grad + launch(); }

  bool span() const { return problem_.objective == Objective::kSpan; }

  TimeNs ValueAt(const State& s, int r, TimeNs end) const {
    if (span()) return s.ranks[size_t(r)].first < 0 ? 0 : end - s.ranks[size_t(r)].first;
    std::vector<int> stages;
    for (int c = 0; c < problem_.placement.stages_per_rank; ++c) {
      stages.push_back(problem_.placement.stage_of(r, c));
    }
    if (problem_.tail == Tail::kNoTail) return end + costs_.optimizer(stages);
    TimeNs most = 0;
    for (int q = 0; q < ranks(); ++q) {
      stages.clear();
      for (int c = 0; c < problem_.placement.stages_per_rank; ++c) {
        stages.push_back(problem_.placement.stage_of(q, c));
      }
      most = std::max(most, costs_.optimizer(stages));
    }
    return end + costs_.common().barrier + most;
  }

  void Visit(const State& s) {
    if (gave_up()) return;
    int next = -1;
    TimeNs now = kNever;
    for (int r = 0; r < ranks(); ++r) {
      const Rank& rank = s.ranks[size_t(r)];
      if (rank.left == kDone || (next >= 0 && rank.decides_at >= now)) continue;
      next = r;
      now = rank.decides_at;
    }
    if (next >= 0 && now == kNever) return;  // stuck
    TimeNs value = 0;
    for (int r = 0; r < ranks(); ++r) {
      const Rank& rank = s.ranks[size_t(r)];
      const TimeNs end = rank.left == kDone ? rank.free : std::max(rank.free, now) + rank.left;
      value = std::max(value, ValueAt(s, r, end));
    }
    if (value >= best_ || (next >= 0 && WayLeft(s, now) >= best_)) return;
    if (next < 0) {
      best_ = value;
      found_ = true;
      return;
    }
    if (!IsNew(s, now)) return;
    TryOps(s, next, now);
    Wait(s, next, now);
  }

  void TryOps(const State& s, int r, TimeNs now) {
    for (int c = problem_.placement.stages_per_rank - 1; c >= 0; --c) {
      const int stage = problem_.placement.stage_of(r, c);
      bool seen[3] = {false, false, false};  // F, B, W: one of lower number has yet to run
      for (int i = 0; i < micro_batches_; ++i) {
        const char done = s.done[At(stage, i)];
        for (const Pass pass : {Pass::kBW, Pass::kB, Pass::kF, Pass::kW}) {
          const int needs = pass == Pass::kF ? 0 : pass == Pass::kW ? 2 : 1;
          if (done != needs || (in_turn_ && seen[needs])) continue;
          TryOp(s, r, c, i, pass, now);
        }
        for (int k = 0; k < 3; ++k) seen[k] |= done <= k;
      }
    }
  }

  void TryOp(const State& s, int r, int c, int i, Pass pass, TimeNs now) {
    const int stage = problem_.placement.stage_of(r, c);
    const size_t at = At(stage, i);
    const Rank& rank = s.ranks[size_t(r)];
    const TimeNs in = pass == Pass::kW   ? 0
                      : pass == Pass::kF ? s.forward_in[at]
                                         : s.backward_in[at];
    if (in == kNever || std::max(in, rank.free) != now) return;
    const StageCost& cost = costs_.of(stage, i);
    const Bytes transient = cost.transient[static_cast<size_t>(pass)];
    Bytes grow = transient;
    Bytes after = rank.live;
    if (pass == Pass::kF) {
      grow += cost.activation;
      after += cost.activation;
    } else if (pass == Pass::kW) {
      after -= cost.weight_state;
    } else {
      after -= cost.activation;
      if (pass == Pass::kB) {
        grow += std::max<Bytes>(0, cost.weight_state - cost.activation);
        after += cost.weight_state;
      }
    }
    if (rank.live > room_[size_t(r)] - grow) return;
    State t = s;
    Rank& me = t.ranks[size_t(r)];
    if (me.first < 0) me.first = now + launch();
    me.live = after;
    me.free = me.decides_at = now + launch() + cost.duration(pass);
    t.done[at] = pass == Pass::kF ? 1 : pass == Pass::kB ? 2 : 3;
    me.left = Left(t, r);
    if (pass == Pass::kF && stage + 1 < stages_) Deliver(t, r, stage + 1, i, false);
    if ((pass == Pass::kB || pass == Pass::kBW) && stage > 0) Deliver(t, r, stage - 1, i, true);
    Visit(t);
  }

  // Where each rank holds one stage: after its last F that micro-batch goes to the last rank and
  // back, and after its last B all ranks before it still have one, and a W.
  TimeNs WayLeft(const State& s, TimeNs now) const {
    if (problem_.placement.stages_per_rank > 1) return 0;
    const TimeNs hop = costs_.common().hop.latency + costs_.common().hop.busy;
    TimeNs value = 0;
    TimeNs there_and_back = 0;  // end of F to start of B
    for (int r = ranks() - 1; r >= 0; --r) {
      const Rank& rank = s.ranks[size_t(r)];
      TimeNs f = 0;
      TimeNs b = 0;
      TimeNs least_f = kNever;
      TimeNs least_b = kNever;
      for (int i = 0; i < micro_batches_; ++i) {
        const TimeNs each = LeastB(r, i);
        least_b = std::min(least_b, each);
        least_f = std::min(least_f, LeastForward(r, 0, i));
        if (s.done[At(r, i)] == 0) f += LeastForward(r, 0, i);
        if (s.done[At(r, i)] <= 1) b += each;
      }
      if (b > 0) {
        TimeNs end = std::max(rank.free, now) + f + b;
        if (f > 0) end = std::max(end, std::max(rank.free, now) + f + there_and_back + least_b);
        for (int k = r; k >= 0; --k) {
          TimeNs least_w = kNever;
          TimeNs least_back = kNever;
          for (int i = 0; i < micro_batches_; ++i) {
            const TimeNs each = LeastB(k, i);
            least_back = std::min(least_back, each);
            least_w = std::min(least_w, LeastBackward(k, 0, i) - each);
          }
          if (k < r) end += hop + least_back;
          value = std::max(value, ValueAt(s, k, end + least_w));
        }
      }
      there_and_back += least_f + least_b + 2 * hop;
    }
    return value;
  }

  TimeNs LeastB(int r, int i) const {
    return std::min(Cost(r, 0, i).input_grad, Cost(r, 0, i).fused_backward) + launch();
  }

  TimeNs Left(const State& s, int r) const {
    TimeNs left = 0;
    bool any = false;
    for (int c = 0; c < problem_.placement.stages_per_rank; ++c) {
      for (int i = 0; i < micro_batches_; ++i) {
        const char done = s.done[At(problem_.placement.stage_of(r, c), i)];
        any |= done < 3;
        if (done == 0) left += LeastForward(r, c, i);
        if (done <= 1) left += LeastBackward(r, c, i);
        if (done == 2) left += LeastW(r, c, i);
      }
    }
    return any ? left : kDone;
  }

  void Deliver(State& s, int from, int stage, int i, bool backward) {
    const int reader = problem_.placement.rank_of(stage);
    TimeNs arrival = s.ranks[size_t(from)].free;
    if (reader != from) {
      const HopCost& hop = costs_.common().hop;
      TimeNs& link = s.link[static_cast<size_t>(from * ranks() + reader)];
      link = std::max(link, arrival) + hop.busy;
      arrival = link + hop.latency;
    }
    (backward ? s.backward_in : s.forward_in)[At(stage, i)] = arrival;
    Rank& other = s.ranks[size_t(reader)];
    if (reader == from || other.left == kDone) return;
    // Where it waits; a busy rank decides when it is free in any case.
    other.decides_at = std::max(other.free, std::min(other.decides_at, arrival));
  }

  void Wait(const State& s, int r, TimeNs now) {
    State t = s;
    TimeNs until = kNever;
    for (int c = 0; c < problem_.placement.stages_per_rank; ++c) {
      for (int i = 0; i < micro_batches_; ++i) {
        const size_t at = At(problem_.placement.stage_of(r, c), i);
        if (t.done[at] == 0 && t.forward_in[at] > now) until = std::min(until, t.forward_in[at]);
        if (t.done[at] <= 1 && t.backward_in[at] > now) until = std::min(until, t.backward_in[at]);
      }
    }
    t.ranks[size_t(r)].decides_at = until;
    Visit(t);
  }

  // All that the future depends on, times counted from now where the objective is a span.
  bool IsNew(const State& s, TimeNs now) {
    std::string key;
    const auto add = [&](TimeNs time) { key.append(reinterpret_cast<const char*>(&time), 4); };
    const TimeNs zero = span() ? now : 0;
    add(now - zero);
    key.append(s.done.begin(), s.done.end());
    TimeNs reached = 0;
    for (int r = 0; r < ranks(); ++r) {
      const Rank& rank = s.ranks[size_t(r)];
      if (rank.left == kDone) {
        reached = std::max(reached, ValueAt(s, r, rank.free));
        continue;
      }
      add(rank.decides_at == kNever ? -1 : rank.decides_at - now);
      add(std::max(rank.free, now - 1) - now);
      if (span()) add(rank.first < 0 ? 1 : rank.first - now);
    }
    for (int stage = 0; stage < stages_; ++stage) {
      for (int i = 0; i < micro_batches_; ++i) {
        const size_t at = At(stage, i);
        const auto add_input = [&](TimeNs in) {
          add(in == kNever ? TimeNs{-2} : std::max(in, now - 1) - now);
        };
        if (s.done[at] == 0) add_input(s.forward_in[at]);
        if (s.done[at] <= 1) add_input(s.backward_in[at]);
      }
    }
    for (const TimeNs link : s.link) add(std::max<TimeNs>(0, link - now));
    const auto [found, is_new] = seen_.try_emplace(key, reached);
    if (is_new) return true;
    if (found->second <= reached) return false;
    found->second = reached;
    return true;
  }

  static constexpr TimeNs kDone = -1;

  const SearchProblem problem_;
  const Costs& costs_;
  const bool in_turn_;
  const int micro_batches_;
  const int stages_;
  std::vector<Bytes> room_;
  TimeNs best_ = kNever;
  bool found_ = false;
  size_t most_states_ = 0;
  std::unordered_map<std::string, TimeNs> seen_;
};

}  // namespace spiritlevel
