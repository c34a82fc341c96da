// The clock of a run, and waits that end when they should.
#pragma once

#include <atomic>

#include "base/units.h"

namespace spiritlevel {

// Steady, and the same for all threads and processes of a machine.
TimeNs Now();

// Sleeps until shortly before `time`, so that the core is free for others, then looks at the clock
// again and again, so that it ends within a microsecond or two where a core is to be had. Ends
// early once `stopping`.
void WaitUntil(TimeNs time, const std::atomic<bool>& stopping);

// Lets this thread's sleeps end when they should, where the system allows it: by default they may
// be 50 us late.
void SleepPrecisely();

// A word to the processor that this is a loop which waits.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace spiritlevel
