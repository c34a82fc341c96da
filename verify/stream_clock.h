// StreamClock: timed events of several devices on one clock, counted from Begin().
#pragma once

#include <functional>
#include <map>
#include <span>

#include "base/units.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel {

class StreamClock {
 public:
  // `devices` by rank; each may stand there several times.
  StreamClock(cuda::Layer& layer, std::span<const int> devices, std::function<TimeNs()> host_clock);
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // While the devices are idle. Where there are several, the host has each record an event often
  // and looks at its own clock before and after; the quickest answer places the event best.
  void Begin();

  // Of a timed event of `device` that is done.
  TimeNs Read(cuda::Event event, int device);

  // No two devices' clocks are apart by more. 0 of one.
  TimeNs error() const { return error_; }

 private:
  struct Base {
    cuda::Stream stream{};
    cuda::Event event{};
    TimeNs host = 0;   // when it was recorded, by the host's clock
    TimeNs doubt = 0;  // within this
  };

  cuda::Layer& layer_;
  std::function<TimeNs()> host_clock_;
  std::map<int, Base> bases_;
  TimeNs origin_ = 0;
  TimeNs error_ = 0;
};

}  // namespace spiritlevel
