// When work is to end early: at an instant, or as soon as somebody asks for it.
#pragma once

#include <atomic>
#include <chrono>

namespace spiritlevel {

struct StopSign {
  using Clock = std::chrono::steady_clock;

  const std::atomic<bool>* asked = nullptr;
  Clock::time_point at = Clock::time_point::max();

  bool IsUp() const {
    if (asked != nullptr && asked->load(std::memory_order_relaxed)) return true;
    return at != Clock::time_point::max() && Clock::now() >= at;
  }
};

}  // namespace spiritlevel
