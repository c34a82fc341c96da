// Advice: which schedule to use, or that 1F1B is right here, with the reason.
//
// Only schedules that ran, passed the checker and fit are advised. 1F1B is always among those
// weighed, asked for or not. Rules, the first that holds:
//
//   kNothingRuns      no schedule can run.
//   kNothingFits      none fits the memory limit; the one with the smallest peak is named.
//   kInsteadOf1F1B    1F1B cannot run or does not fit, another does: the best of those.
//   1F1B is right, since the best that fits is not 2 % faster, because
//   kBubbleSmall        of 1F1B's step less than 3 % is not the ranks' own work;
//   kBottleneck         the slowest stage's work alone is 97 % of 1F1B's step;
//   kBarelySplit        W is less than 10 % of BW, so there is nothing to fill a bubble with;
//   kNoRoom             one is 2 % faster but does not fit;
//   kTrafficEatsGain    a V placement would be, if its ranks did not wait for messages on their
//   way; kNoGain             whatever it is, no schedule gains 2 %. kBetter           the best that
//   fits.
//
// The small bubble stands before the bottleneck because with equal stages it implies it, and both
// stand before the split because they bound every schedule, the split only those that use it.
//
// The best is the fastest by step, but steps within 0.5 % count as equal. Of those 1F1B comes
// first, then the smallest peak memory, then the least sent between ranks, then the simpler order:
// gpipe, interleaved, and so on as the catalog has them. Where B and W are barely split, one that
// holds no weight gradients back is preferred to any that is not 2 % faster, since the gain of the
// others is not to be counted on.
//
// What is advised may rest on a split backward that a runtime does not do well: that is said beside
// it, where W is barely split and where layers are recomputed.
#pragma once

#include <string>

#include "report/result.h"

namespace spiritlevel {

enum class AdviceKind {
  kNothingRuns,
  kNothingFits,
  kInsteadOf1F1B,
  kBubbleSmall,
  kBottleneck,
  kBarelySplit,
  kNoRoom,
  kTrafficEatsGain,
  kNoGain,
  kBetter,
};

struct Advice {
  AdviceKind kind = AdviceKind::kNothingRuns;
  std::string schedule{};  // to use; empty where nothing runs or fits
  std::string text{};      // one paragraph, not wrapped
};

Advice FindAdvice(const Comparison& comparison);

std::string Advise(const Comparison& comparison);  // FindAdvice().text

}  // namespace spiritlevel
