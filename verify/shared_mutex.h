// SharedMutex: between threads of one or of several processes. One that dies while it holds it does
// not lock the others out; the next to lock it is told.
#pragma once

#include <pthread.h>

#include "base/units.h"

namespace spiritlevel {

class SharedMutex {
 public:
  void Initialise(bool shared);

  enum class Outcome { kLocked, kOwnerDied, kTimedOut };
  Outcome Lock();
  Outcome LockWithin(TimeNs limit);
  void Unlock() { ::pthread_mutex_unlock(&mutex_); }

 private:
  Outcome Judge(int result);

  pthread_mutex_t mutex_;
};

}  // namespace spiritlevel
