#include "verify/clock.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

namespace spiritlevel {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

// From here on a wait does not sleep: to be woken takes as long, and varies. Nor does it offer its
// core, since whoever takes it keeps it for milliseconds.
constexpr TimeNs kClose = 60'000;

// A sleep looks so often whether it is still wanted.
constexpr TimeNs kNap = 20'000'000;

}  // namespace

TimeNs Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return TimeNs{now.tv_sec} * kSecond + now.tv_nsec;
}

void WaitUntil(TimeNs time, const std::atomic<bool>& stopping) {
  for (TimeNs now = Now(); now < time; now = Now()) {
    if (stopping.load(std::memory_order_relaxed)) return;
    const TimeNs left = time - now;
    if (left > kClose) {
      const TimeNs until = std::min(time - kClose, now + kNap);
      const timespec wake{.tv_sec = until / kSecond, .tv_nsec = until % kSecond};
      ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr);
    } else {
      Pause();
    }
  }
}

void SleepPrecisely() { ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

}  // namespace spiritlevel
