#include "verify/shared_mutex.h"

#include <errno.h>
#include <time.h>

#include "base/check.h"

namespace spiritlevel {

void SharedMutex::Initialise(bool shared) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  if (shared) {
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  }
  const int result = ::pthread_mutex_init(&mutex_, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  SPIRITLEVEL_CHECK(result == 0, "a mutex can be made");
}

SharedMutex::Outcome SharedMutex::Lock() { return Judge(::pthread_mutex_lock(&mutex_)); }

SharedMutex::Outcome SharedMutex::LockWithin(TimeNs limit) {
  constexpr TimeNs kSecond = 1'000'000'000;
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  const TimeNs nanoseconds = until.tv_nsec + limit;
  until.tv_sec += nanoseconds / kSecond;
  until.tv_nsec = nanoseconds % kSecond;
  return Judge(::pthread_mutex_timedlock(&mutex_, &until));
}

SharedMutex::Outcome SharedMutex::Judge(int result) {
  if (result == 0) return Outcome::kLocked;
  if (result == ETIMEDOUT) return Outcome::kTimedOut;
  SPIRITLEVEL_CHECK(result == EOWNERDEAD, "a mutex can be locked");
  // What it protected may be half done: who is told must end the run.
  ::pthread_mutex_consistent(&mutex_);
  return Outcome::kOwnerDied;
}

}  // namespace spiritlevel
