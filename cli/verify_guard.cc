#include "cli/verify_guard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "base/utf8.h"
#include "cli/output.h"

namespace spiritlevel {
namespace {

constexpr int kExitStatus = 1;

// On a line of its own, not behind what is being worked on.
void Say(const std::string& what) {
  const bool is_terminal = ::isatty(STDERR_FILENO) != 0;
  Warn((is_terminal ? "\r\033[K" : "") + Printable(what) + "\n");
}

}  // namespace

struct RunGuard::State {
  std::string what;
  TimeNs grace = 0;
  std::mutex mutex{};
  std::condition_variable changed{};
  bool has_come_back = false;
  std::thread waiting{};  // begun by a failure: no other thread may be there when ranks are forked

  void WaitForTheRun() {
    std::unique_lock lock(mutex);
    const auto limit = std::chrono::nanoseconds(grace);
    if (changed.wait_for(lock, limit, [this] { return has_come_back; })) return;
    Say(
        fmt::format("{}: {:.1f} s later a rank is still inside its work and cannot be ended; this "
                    "ends here, and nothing is written",
                    what, static_cast<double>(grace) * 1e-9));
    // Not exit(): what it would take down is in use.
    std::_Exit(kExitStatus);
  }
};

RunGuard::RunGuard(std::string what, TimeNs grace)
    : state_(new State{.what = std::move(what), .grace = grace}) {}

RunGuard::~RunGuard() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->has_come_back = true;
  }
  state_->changed.notify_all();
  if (state_->waiting.joinable()) state_->waiting.join();
}

std::function<void(const Failure&)> RunGuard::listener() const {
  return [state = state_.get()](const Failure& failure) {
    Say(fmt::format("{}: the run failed: {}", state->what, failure.message));
    state->waiting = std::thread([state] { state->WaitForTheRun(); });
  };
}

}  // namespace spiritlevel
