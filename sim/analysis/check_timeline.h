// The timeline checker: judges events, predicted or measured, by the rules of pipeline training
// alone. It sees no Program, no Costs and no Schedule, so it cannot repeat their mistakes.
//
//   TimelineChecker checker(/*memory_limit=*/16000);
//   ForEachEvent(program, timeline, 1, [&](const Event& e) { checker.Add(e); });
//   for (const Finding& f : checker.Finish()) ...
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/analysis/check_findings.h"
#include "sim/analysis/stalls.h"
#include "sim/event.h"

namespace spiritlevel {

// Whether a timeline may stop before the optimizer steps of its last iteration and what goes with
// them, on all ranks alike: measured ones may be cut there. Earlier iterations always need theirs.
enum class LastTail : uint8_t { kRequired, kMayBeCut };

// Feed it every event of a range of whole iterations (it need not start with the first), in any
// order that keeps each rank's compute lane in order; then ask. Rules, by name:
//   bad_event        a rank, micro-batch or pass that cannot be; the event is judged no further
//   overlap          a rank runs one compute-lane node at a time, none ends before it starts
//   dependency       an op starts before an input was computed, or before it had arrived, or runs
//                    on another rank than the passes before it of its stage and micro-batch
//   message          every send has its receive under one id, both ends agree on ranks, bytes and
//                    what is carried; an input from another rank came by a message, once, which
//                    left after it was made and arrived after it left
//   pass_count       each (stage, micro-batch, iteration) has F once and BW, or B and W, once;
//                    no ops at all
//   version          one parameter version per micro-batch and iteration along all stages, F to W,
//                    messages included; on each rank only an optimizer step changes the version,
//                    by one, and what stands behind the step reads what it left
//   collective       all members (those that name its id) end together, and not before each of
//                    them was issued. One behind a rank's last op of an iteration, such as the
//                    barrier, is joined by every rank, in the same place among these and on the
//                    same side of the optimizer step; iterations have equally many of them. Any
//                    other may be of some ranks, but not of one alone
//   optimizer_count  a rank that runs ops in an iteration steps its optimizer once in it
//   early_optimizer  an optimizer step stands before an op of its rank and iteration
//   late_optimizer   an optimizer step stands behind an op of its rank and a later iteration
//   reduction        where an iteration has a reduction beside compute, every rank that runs ops in
//                    it takes part, under one id, at one time, once the last op of all has ended;
//                    and every other iteration has one too
//   validation       each rank validates what it reads once in the iteration after a reduction (and
//                    once more for each rollback), not before that has ended. Between the step and
//                    the validation run only forwards that are marked provisional, and none such
//                    behind it
//   rejection        a rollback stands right behind a validation, on all ranks alike, before any op
//                    of the iteration that is kept, and leaves the memory that there was before
//                    those that are dropped. Dropped are provisional forwards, made of nothing but
//                    each other's results, which came in time and whose messages have both ends;
//                    each is run again
//   part             the parts of an op run on its rank, each once, in their order
//   bucket           a sum of gradients starts once everything has ended that adds to them: a
//                    bucket's sum over the replicas after the last W or BW of its stage, or the
//                    part of it that fills the bucket; a sum between ranks after those of the
//                    stage's buckets on each of them, or its last W. Where some are summed in any
//                    iteration, all of their kind are, once in each; the rank's optimizer step, a
//                    collective behind its last op and the reduction that is validated come after
//                    all of them
//   collective_order two ranks take part in the sums that both are members of in one order; each
//                    sum between ranks has two members or more, all at one time
//   ledger           categories sum to the live total; after of one event is before of the next
//   negative_memory  a category below zero
//   memory_limit     live memory above the limit, named with rank, op, bytes and category: the
//                    first time on each rank
// Times are compared, never added up: nothing is assumed about latencies, about how messages are
// posted, or about where time zero lies.
//
// Training is taken to be synchronous: every iteration of the range ends with its optimizer steps.
// A rank may step on its own, as post-validation does; a rollback is no step of its own and makes
// the same version again. What dropped ops do is judged by `rejection` alone. What the rules cannot
// see without the Program: a collective that no rank and no iteration has, and who is missing among
// the ranks of one that is not behind the last op, unless only one is left.
class TimelineChecker {
 public:
  explicit TimelineChecker(std::optional<Bytes> memory_limit,
                           LastTail last_tail = LastTail::kRequired);
  // A limit for each rank.
  explicit TimelineChecker(std::vector<Bytes> limits, LastTail last_tail = LastTail::kRequired);
  ~TimelineChecker();
  TimelineChecker(TimelineChecker&&) noexcept;
  TimelineChecker& operator=(TimelineChecker&&) noexcept;

  void Add(const Event& event);
  std::vector<Finding> Finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::vector<Finding> CheckTimeline(std::span<const Event> events, std::optional<Bytes> memory_limit,
                                   LastTail last_tail = LastTail::kRequired);

// busy + stalls = makespan on each rank ("accounts"), with busy (time in ops) and makespan (from
// the first instant at which anything was ready to the last end on any rank) recomputed from the
// first iteration's events.
class AccountsChecker {
 public:
  void Add(const Event& event);  // of any iterations, in any order
  std::vector<Finding> Finish(const StallReport& report) const;

 private:
  int32_t first_iteration_ = std::numeric_limits<int32_t>::max();
  TimeNs begin_ = std::numeric_limits<TimeNs>::max();
  TimeNs end_ = std::numeric_limits<TimeNs>::min();
  std::vector<TimeNs> busy_;  // by rank
};

std::vector<Finding> CheckAccounts(std::span<const Event> events, const StallReport& report);

}  // namespace spiritlevel
