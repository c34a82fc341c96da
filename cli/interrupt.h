// Ctrl-C: the first asks for an end, and what is done is kept; the second is one.
#pragma once

#include <signal.h>

#include <atomic>

namespace spiritlevel {

// Turned true by the signal; the only thing that a signal handler can reach.
extern std::atomic<bool> interrupted;

// While it lives, the first ctrl-C sets `interrupted` and does nothing else.
class OnInterrupt {
 public:
  OnInterrupt();
  ~OnInterrupt();
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace spiritlevel
