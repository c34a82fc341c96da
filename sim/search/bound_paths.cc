#include "sim/search/bound_paths.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace spiritlevel {
namespace {

EasyCost Ease(const StageCost& c, TimeNs launch) {
  const TimeNs split = c.input_grad + launch;
  const TimeNs fused = c.fused_backward + launch;
  const TimeNs both = std::min(split + c.weight_grad + launch, fused);
  const TimeNs backward = std::min(split, fused);
  return {.forward = c.forward + launch,
          .backward = backward,
          .weight = both - backward,
          .activation = c.activation,
          .weight_state = std::min(c.weight_state, c.activation)};
}

template <typename Less>
PrefixSums SumsOf(std::vector<int64_t> values, int copies, Less less) {
  std::sort(values.begin(), values.end(), less);
  PrefixSums sums = {0};
  sums.reserve(values.size() * static_cast<size_t>(copies) + 1);
  for (const int64_t value : values) {
    for (int i = 0; i < copies; ++i) sums.push_back(sums.back() + value);
  }
  return sums;
}

// Notes that an op of `time` gives `bytes` back.
void NoteFreed(RankItems* r, bool* unbounded, Bytes bytes, TimeNs time) {
  if (bytes <= 0) return;
  r->most_freed_at_once = std::max(r->most_freed_at_once, bytes);
  *unbounded |= time <= 0;
  if (static_cast<Int128>(bytes) * r->steepest.time >=
      static_cast<Int128>(r->steepest.bytes) * time) {
    r->steepest = {.bytes = bytes, .time = time};
  }
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

}  // namespace

Path::Path(const SearchProblem& problem, int micro_batch) {
  const Placement& placement = problem.placement;
  const Costs::Common& common = problem.costs->common();
  const int stages = placement.num_stages();
  const auto hop = [&](int stage) {  // between it and the next
    const bool same = placement.rank_of(stage) == placement.rank_of(stage + 1);
    return same ? TimeNs{0} : common.hop.latency + common.hop.busy;
  };
  forward_.assign(static_cast<size_t>(stages), 0);
  backward_.assign(static_cast<size_t>(stages), 0);
  for (int s = 0; s < stages; ++s) {
    costs_.push_back(Ease(problem.costs->of(s, micro_batch), common.launch));
    if (s > 0) forward_[static_cast<size_t>(s)] = forward_end(s - 1) + hop(s - 1);
  }
  backward_.back() = forward_end(stages - 1);
  for (int s = stages - 2; s >= 0; --s) {
    backward_[static_cast<size_t>(s)] = backward_end(s + 1) + hop(s);
  }
}

std::vector<Path> PathsOf(const SearchProblem& problem) {
  std::vector<Path> paths;
  const int rows = problem.costs->varies_by_micro_batch() ? problem.micro_batches() : 1;
  for (int i = 0; i < rows; ++i) paths.emplace_back(problem, i);
  return paths;
}

TimeNs OptimizerOf(const SearchProblem& problem, int rank) {
  std::vector<int> stages;
  for (int chunk = 0; chunk < problem.placement.stages_per_rank; ++chunk) {
    stages.push_back(problem.placement.stage_of(rank, chunk));
  }
  return problem.costs->optimizer(stages);
}

RankItems ItemsOf(const SearchProblem& problem, const std::vector<Path>& paths, int rank) {
  const Placement& placement = problem.placement;
  const int chunks = placement.stages_per_rank;
  const int first = placement.stage_of(rank, 0);
  const int last = placement.stage_of(rank, chunks - 1);
  const int copies = problem.micro_batches() / static_cast<int>(paths.size());
  RankItems r;
  r.chunks = chunks;
  r.items = chunks * problem.micro_batches();
  r.least_whole = kMost;
  r.least_last_backward = kMost;
  r.to_first_backward = r.to_last_chunk = r.to_backward_end = r.to_weight_end = kMost;
  Bytes least_at_forward = kMost;
  Bytes least_at_backward = kMost;
  bool unbounded = false;
  std::vector<int64_t> f, b, w, activation, state, first_f, first_activation;
  for (size_t n = 0; n < paths.size(); ++n) {
    const Path& path = paths[n];
    Bytes whole = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int stage = placement.stage_of(rank, chunk);
      const EasyCost& c = path.cost(stage);
      f.push_back(c.forward);
      b.push_back(c.backward);
      w.push_back(c.weight);
      activation.push_back(c.activation);
      state.push_back(c.weight_state);
      whole += c.activation;
      const TimeNs life = path.backward_end(stage) - path.forward_start(stage);
      r.held += copies * (static_cast<Int128>(c.activation) * life +
                          static_cast<Int128>(c.weight_state) * c.weight);
      NoteFreed(&r, &unbounded, c.activation - c.weight_state, c.backward);
      NoteFreed(&r, &unbounded, c.weight_state, c.weight);
      const StageCost& real = problem.costs->of(stage, static_cast<int>(n));
      const auto transient = [&](Pass pass) { return real.transient[static_cast<size_t>(pass)]; };
      least_at_forward = std::min(least_at_forward, transient(Pass::kF));
      const Bytes split =
          std::max<Bytes>(0, real.weight_state - real.activation) + transient(Pass::kB);
      least_at_backward = std::min({least_at_backward, split, transient(Pass::kBW)});
    }
    first_f.push_back(path.cost(first).forward);
    first_activation.push_back(path.cost(first).activation);
    r.least_whole = std::min(r.least_whole, whole);
    r.least_last_backward = std::min(r.least_last_backward, path.cost(last).backward);
    const auto least = [](TimeNs& of, TimeNs time) { of = std::min(of, time); };
    least(r.to_first_backward, path.backward_start(last) - path.forward_start(first));
    least(r.to_last_chunk, path.forward_end(last) - path.forward_start(first));
    const TimeNs back = path.backward_end(first) - path.forward_end(last);
    least(r.to_backward_end, back);
    least(r.to_weight_end, back + path.cost(first).weight);
    r.longest_way = std::max(r.longest_way, path.backward_end(first) - path.forward_start(first) +
                                                path.cost(first).weight);
  }
  if (unbounded) r.steepest = {};
  const auto smallest = [&](const std::vector<int64_t>& of) {
    return SumsOf(of, copies, std::less<>());
  };
  r.most_forward = SumsOf(f, copies, std::greater<>());
  r.most_activation = SumsOf(activation, copies, std::greater<>());
  r.forward = smallest(f);
  r.backward = smallest(b);
  r.weight = smallest(w);
  r.activation = smallest(activation);
  r.weight_state = smallest(state);
  r.first_forward = smallest(first_f);
  r.first_activation = smallest(first_activation);
  r.room = problem.room(rank);
  if (r.room != kNoLimit) r.room = std::min(r.room, r.activation.back());
  const Bytes room =
      std::min(problem.room(rank), kNoLimit / 4);  // sums with it stay far from overflow
  r.limit_at_forward = room - least_at_forward;
  r.limit_at_backward = room - least_at_backward;
  return r;
}

}  // namespace spiritlevel
