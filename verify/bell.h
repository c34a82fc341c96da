// Bell: wakes the one thread that waits for it, also across processes.
//
// A futex and not a condition variable: those of the C library hang for good once a process is
// killed while it waits for one, and a killed process must not take the others with it.
//
//   waiter:  const uint32_t heard = bell.rings();  ...look at what is there...;
//            bell.WaitForRing(heard, patience, until);
//   others:  ...change what is there...; bell.Ring();
//
// Lies in shared memory where the threads are of several processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/units.h"

namespace spiritlevel {

class Bell {
 public:
  uint32_t rings() const { return rings_.load(std::memory_order_acquire); }

  // Until it has rung since it was `heard`, or the time has come (0: it never does). May end early.
  // Looks for as long as `patience`, then sleeps.
  void WaitForRing(uint32_t heard, TimeNs patience, TimeNs until);

  void Ring();

 private:
  void Sleep(uint32_t heard, TimeNs time);

  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> sleeps_{0};
  static_assert(std::atomic<uint32_t>::is_always_lock_free);
};

}  // namespace spiritlevel
