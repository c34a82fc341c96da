#include "sim/search/bound_rank.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace spiritlevel {
namespace {

// How many micro-batches a chain's link may span beyond the shortest, where not thorough.
constexpr int kShortChain = 32;
constexpr TimeNs kNoLink = std::numeric_limits<TimeNs>::min() / 4;

// How many items fit into `limit`, the smallest first.
int Fitting(const PrefixSums& sums, Bytes limit) {
  const auto above = std::upper_bound(sums.begin(), sums.end(), limit);
  return static_cast<int>(above - sums.begin()) - 1;
}

// The bounds of one rank. Names are those of docs/bounds.md.
class OneRank {
 public:
  OneRank(const RankItems& items, bool thorough)
      : r_(items), thorough_(thorough), micro_batches_(items.items / items.chunks) {
    held_most_ = Fitting(r_.activation, std::min(r_.limit_at_forward, r_.limit_at_backward));
    FindWaitingForW();
    FindStarts();
  }

  RankBound Solve() {
    FindEnds();
    RankBound bound{.span = r_.work(), .to_last_backward = last_backward_};
    const auto raise = [&](TimeNs value, RankReason reason) {
      if (value <= bound.span) return;
      bound.span = value;
      bound.reason = reason;
    };
    raise(r_.longest_way, RankReason::kWay);
    raise(ends_, RankReason::kEnds);
    raise(cycle_, RankReason::kCycle);
    raise(Held(bound.span), RankReason::kHeld);
    return bound;
  }

 private:
  static int64_t At(const PrefixSums& sums, int k) { return sums[static_cast<size_t>(k)]; }

  // most_waiting_[u]: B's whose W may be missing while u F's wait for their B, in an F's memory;
  // -1 where the latter alone are too many.
  void FindWaitingForW() {
    most_waiting_.resize(static_cast<size_t>(r_.items) + 1);
    for (int u = 0; u <= r_.items; ++u) {
      most_waiting_[static_cast<size_t>(u)] =
          Fitting(r_.weight_state, r_.limit_at_forward - At(r_.activation, u));
    }
  }

  // Least time of the backward work without which the memory of F number N (from 0) does not reach:
  // `distance` is N less the number of the B after which that work is counted. One chunk only.
  TimeNs WorkToFree(int distance) const {
    TimeNs best = -1;
    for (int beta = 0; beta <= distance; ++beta) {
      const int waiting = most_waiting_[static_cast<size_t>(distance + 1 - beta)];
      if (waiting < 0) continue;
      const TimeNs b = At(r_.backward, beta);
      if (best >= 0 && b >= best) break;
      const TimeNs work = b + At(r_.weight, std::max(0, beta - waiting));
      if (best < 0 || work < best) best = work;
      if (beta <= waiting) break;  // more B's only add to it
    }
    SPIRITLEVEL_CHECK(best >= 0, "what one micro-batch needs fits");
    return best;
  }

  // starts_[n]: least time from the first F of the first chunk to the n-th, in any order.
  void FindStarts() {
    most_in_flight_ = held_most_;
    if (r_.chunks > 1) {
      most_in_flight_ =
          1 + std::max(0, Fitting(r_.first_activation, r_.limit_at_backward - r_.least_whole));
    }
    const int count = micro_batches_;
    std::vector<TimeNs> link(static_cast<size_t>(count), 0);  // by distance
    const int longest = thorough_ ? count : std::min(count, most_in_flight_ + kShortChain);
    for (int d = most_in_flight_; d < longest; ++d) {
      TimeNs freeing = r_.least_last_backward;
      if (r_.chunks == 1) freeing = std::max(freeing, WorkToFree(d));
      link[static_cast<size_t>(d)] =
          r_.to_first_backward + At(r_.first_forward, d - most_in_flight_) + freeing;
    }
    starts_.assign(static_cast<size_t>(count), 0);
    for (int n = 1; n < count; ++n) {
      TimeNs start = std::max(At(r_.first_forward, n),
                              starts_[static_cast<size_t>(n - 1)] + At(r_.first_forward, 1));
      for (int d = most_in_flight_; d <= std::min(n, longest - 1); ++d) {
        start = std::max(start, starts_[static_cast<size_t>(n - d)] + link[static_cast<size_t>(d)]);
      }
      starts_[static_cast<size_t>(n)] = start;
    }
  }

  // The end of the last F, and what comes after it: the least over all (b, w), the numbers of B's
  // and W's before it.
  void FindEnds() {
    ends_ = cycle_ = last_backward_ = -1;
    if (held_most_ >= r_.items && most_waiting_[static_cast<size_t>(r_.items)] >= 0) {
      ConsiderNoneBefore();
    }
    FindLinksToLast();
    for (int b = 1; b <= r_.items - r_.chunks; ++b) {
      const int waiting = most_waiting_[static_cast<size_t>(r_.items - b)];
      if (waiting < 0) continue;
      const int fewest = std::max(0, b - waiting);
      if (thorough_) {
        Consider(b, fewest);
      } else {
        ConsiderRoughly(b, fewest);
      }
    }
    SPIRITLEVEL_CHECK(ends_ >= 0, "the last forward fits");
  }

  static void Lower(TimeNs& least, TimeNs value) {
    if (least < 0 || value < least) least = value;
  }

  TimeNs chain_end() const { return starts_.back() + r_.to_last_chunk; }

  void ConsiderNoneBefore() {
    const TimeNs f = r_.forward.back();
    const TimeNs b = r_.backward.back();
    const TimeNs wait = std::max(f, r_.to_first_backward);
    const TimeNs end = std::max(f, chain_end());
    Lower(ends_, std::max(wait + b + r_.weight.back(), f + r_.to_weight_end));
    Lower(cycle_, std::max(wait + b + r_.weight.back(), end + r_.to_weight_end));
    Lower(last_backward_, std::max(wait + b, end + r_.to_backward_end));
  }

  TimeNs IdleBeforeFirstBackward() const {
    const int most = std::min(held_most_, r_.items - 1);
    return std::max<TimeNs>(0, r_.to_first_backward - At(r_.most_forward, most));
  }

  // The a-th B of those before the last F: its start, and the F's after it. What B's and W's lie
  // between depends on b and w, of which b each_b (+ w each_w, where a < w) is left out here.
  void FindLinksToLast() {
    if (r_.chunks > 1 || !thorough_) return;
    const TimeNs each_b = At(r_.backward, 1);
    const TimeNs each_w = At(r_.weight, 1);
    best_before_ = {kNoLink};
    for (int a = 0; a < r_.items; ++a) {
      const int forwards = std::max(1, r_.items - a - most_in_flight_);
      const TimeNs link = starts_[static_cast<size_t>(a)] + r_.to_first_backward +
                          At(r_.forward, forwards) - a * each_b;
      links_.push_back(link);
      best_before_.push_back(std::max(best_before_.back(), link - a * each_w));
    }
  }

  // All w for one b.
  void Consider(int b, int fewest) {
    const TimeNs each_w = At(r_.weight, 1);
    const TimeNs b_between = b * At(r_.backward, 1);
    TimeNs best_from_w = kNoLink;
    for (int w = b; w >= fewest; --w) {
      TimeNs end = chain_end();
      if (!links_.empty()) {
        const auto i = static_cast<size_t>(w);
        if (w < b) best_from_w = std::max(best_from_w, links_[i]);
        end = std::max(end, b_between + std::max(best_from_w, best_before_[i] + w * each_w));
      }
      ConsiderPair(b, w, end);
    }
  }

  // Without links, and for all w at once: each part at the w where it is least.
  void ConsiderRoughly(int b, int fewest) {
    const TimeNs idle = IdleBeforeFirstBackward();
    const TimeNs all = r_.work() + idle;
    const TimeNs early = r_.forward.back() + At(r_.backward, b) + At(r_.weight, fewest) + idle;
    const TimeNs left_b = At(r_.backward, r_.items - b);
    const TimeNs left_w = At(r_.weight, r_.items - b);
    const TimeNs ends = std::max(all, early + r_.to_weight_end);
    Lower(ends_, ends);
    Lower(cycle_, std::max(ends, chain_end() + std::max(r_.to_weight_end, left_b + left_w)));
    Lower(
        last_backward_,
        std::max({r_.forward.back() + r_.backward.back() + At(r_.weight, fewest) + idle,
                  early + r_.to_backward_end, chain_end() + std::max(r_.to_backward_end, left_b)}));
  }

  void ConsiderPair(int b, int w, TimeNs end) {
    const TimeNs idle = IdleBeforeFirstBackward();
    const TimeNs before = r_.forward.back() + At(r_.backward, b) + At(r_.weight, w) + idle;
    const TimeNs left_b = At(r_.backward, r_.items - b);
    const TimeNs left = left_b + At(r_.weight, r_.items - w);
    const TimeNs ends = std::max(r_.work() + idle, before + r_.to_weight_end);
    Lower(ends_, ends);
    Lower(cycle_, std::max(ends, end + std::max(r_.to_weight_end, left)));
    Lower(last_backward_,
          std::max({r_.forward.back() + r_.backward.back() + At(r_.weight, w) + idle,
                    before + r_.to_backward_end, end + std::max(r_.to_backward_end, left_b)}));
  }

  // Bytes times time: what is held must fit into the room times the span, of which the start and
  // the end cannot be used. `span` is what is known already.
  TimeNs Held(TimeNs span) const {
    if (r_.room == kNoLimit || r_.room <= 0) return 0;
    const Int128 room = r_.room;
    Int128 lost = 0;
    TimeNs ramps = 0;
    // As long as the k-th F has not ended, only k items can be held.
    for (int k = 1; k <= r_.items && At(r_.most_activation, k) < r_.room; ++k) {
      const TimeNs f = At(r_.forward, k) - At(r_.forward, k - 1);
      lost += (room - At(r_.most_activation, k)) * f;
      ramps += f;
    }
    AddLastRamp(&lost, &ramps);
    // Where the two might overlap, only one thing is sure.
    const Int128 held = span >= ramps ? r_.held + lost : r_.held;
    return static_cast<TimeNs>((held + room - 1) / room);
  }

  void AddLastRamp(Int128* lost, TimeNs* ramps) const;

  const RankItems& r_;
  const bool thorough_;
  const int micro_batches_;
  int held_most_ = 0;       // items between F and the end of their B
  int most_in_flight_ = 0;  // micro-batches between the first F and the last B, at a last chunk's B
  std::vector<int> most_waiting_;
  std::vector<TimeNs> starts_;
  std::vector<TimeNs> links_;
  std::vector<TimeNs> best_before_;
  TimeNs ends_ = -1;
  TimeNs cycle_ = -1;
  TimeNs last_backward_ = -1;
};

// The time in which what is held at one instant can be given back: at the steepest rate that any
// item allows, but for one op that is just ending.
void OneRank::AddLastRamp(Int128* lost, TimeNs* ramps) const {
  if (r_.steepest.time <= 0 || r_.steepest.bytes <= 0) return;
  const Int128 height = static_cast<Int128>(r_.room) - r_.most_freed_at_once;
  if (height <= 0) return;
  const Int128 time = height * r_.steepest.time / r_.steepest.bytes;
  if (time > std::numeric_limits<TimeNs>::max() / 4) return;
  *lost += height * time / 2;
  *ramps += static_cast<TimeNs>(time);
}

}  // namespace

RankBound BoundOf(const RankItems& items, bool thorough) {
  return OneRank(items, thorough).Solve();
}

}  // namespace spiritlevel
