#include "cli/interrupt.h"

namespace spiritlevel {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

OnInterrupt::OnInterrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, &before_);
}

OnInterrupt::~OnInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }

}  // namespace spiritlevel
