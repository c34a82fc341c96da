#include "verify/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "verify/clock.h"

namespace spiritlevel {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

// Nobody sleeps longer without looking round: a bell that a dying rank did not get to ring must not
// be waited for.
constexpr TimeNs kLongestSleep = 100'000'000;

// Shortly before a time that somebody waits for, nobody sleeps.
constexpr TimeNs kClose = 60'000;

constexpr int kTurns = 20;  // between two looks at the clock

}  // namespace

void Bell::WaitForRing(uint32_t heard, TimeNs patience, TimeNs until) {
  const auto rung = [&] { return rings_.load(std::memory_order_acquire) != heard; };
  TimeNs now = Now();
  const TimeNs looks_until = now + patience;
  const TimeNs last = until == 0 ? now + kLongestSleep : std::min(until, now + kLongestSleep);
  for (; !rung() && now < last; now = Now()) {
    if (now < looks_until || (until != 0 && last - now <= kClose)) {
      for (int i = 0; i < kTurns && !rung(); ++i) Pause();
    } else {
      Sleep(heard, last - now - (until != 0 ? kClose : 0));
    }
  }
}

// That it sleeps is said before the last look, and Ring() looks after it has rung: one of both sees
// the other.
void Bell::Sleep(uint32_t heard, TimeNs time) {
  const timespec timeout{.tv_sec = time / kSecond, .tv_nsec = time % kSecond};
  sleeps_.store(1);
  if (rings_.load() == heard) {
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&rings_), FUTEX_WAIT, heard, &timeout, nullptr,
              0);
  }
  sleeps_.store(0);
}

void Bell::Ring() {
  rings_.fetch_add(1);
  if (sleeps_.load() == 0) return;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&rings_), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace spiritlevel
