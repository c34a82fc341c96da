#include "verify/stream_clock.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spiritlevel {
namespace {

constexpr int kQuestions = 50;

}  // namespace

StreamClock::StreamClock(cuda::Layer& layer, std::span<const int> devices,
                         std::function<TimeNs()> host_clock)
    : layer_(layer), host_clock_(std::move(host_clock)) {
  for (const int device : devices) bases_[device];
}

StreamClock::~StreamClock() {
  for (const auto& [device, base] : bases_) {
    if (base.event != cuda::Event{}) layer_.Destroy(base.event);
    if (base.stream != cuda::Stream{}) layer_.Destroy(base.stream);
  }
}

void StreamClock::Begin() {
  const bool is_one = bases_.size() == 1;
  for (auto& [device, base] : bases_) {
    base.stream = layer_.MakeStream(device, {}, true);
    for (int i = 0; i < (is_one ? 1 : kQuestions); ++i) {
      const cuda::Event event = layer_.MakeEvent(device, true);
      const TimeNs before = host_clock_();
      layer_.Record(event, base.stream);
      layer_.Synchronize(base.stream);
      const TimeNs doubt = (host_clock_() - before) / 2;
      if (base.event != cuda::Event{} && doubt >= base.doubt) {
        layer_.Destroy(event);
        continue;
      }
      if (base.event != cuda::Event{}) layer_.Destroy(base.event);
      base.event = event;
      base.doubt = doubt;
      base.host = before + doubt;
    }
  }
  origin_ = bases_.begin()->second.host;
  for (const auto& [device, base] : bases_) origin_ = std::max(origin_, base.host);
  if (is_one) return;
  std::vector<TimeNs> doubts;
  for (const auto& [device, base] : bases_) doubts.push_back(base.doubt);
  std::sort(doubts.rbegin(), doubts.rend());
  error_ = doubts[0] + doubts[1];
}

TimeNs StreamClock::Read(cuda::Event event, int device) {
  const Base& base = bases_.at(device);
  return layer_.Between(base.event, event) + base.host - origin_;
}

}  // namespace spiritlevel
