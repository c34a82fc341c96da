// CudaTimer: how long a workload takes on a GPU, by events on its stream.
//
// All runs are posted while the device still does something else (the gate: a few fills of
// memory), so that what is timed is the device and not the host's posting. Beside it other
// workloads may be kept going on streams of their own; they begin before the first timed run, and
// end behind the last.
//
//   CudaTimer timer(layer, device, l2);
//   timer.Time(*workload, 10);                                  // of 10 runs
//   timer.Beside({other.get()}, [&] { timer.Time(*workload, 10); });
//
// Where anything fails, communicators that it watches are ended before the error goes on: what
// waits for a lost peer would otherwise keep the memory that it uses, and whoever frees it, for
// ever.
//
// Internal to calibrate/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/cuda_workload.h"

namespace spiritlevel {

class CudaTimer {
 public:
  CudaTimer(cuda::Layer* layer, int device, Bytes l2);

  TimeNs Time(CudaWorkload& workload, int repeats);

  // Without a gate: for what the host takes to post.
  TimeNs TimeOfPosting(CudaWorkload& workload, int repeats);

  // Of one run of `message`, posted when one product of three is done: the next one holds the chip.
  TimeNs TimeBehind(CudaWorkload& product, CudaWorkload& message);

  // `stream` is what the communicator posts on.
  void Watch(cuda::Communicator communicator, cuda::Stream stream);
  void Forget(cuda::Communicator communicator);

  // While `body` times something, the others run. None may be on a stream that it times.
  void Beside(const std::vector<CudaWorkload*>& others, const std::function<void()>& body);

 private:
  struct Other {
    CudaWorkload* workload = nullptr;
    CudaOwned<cuda::Event> begun{};
    CudaOwned<cuda::Event> done{};
    double runs_for_one = 1.25;  // of what is timed: by and by as many as it takes
  };

  struct Watched {
    cuda::Communicator communicator{};
    cuda::Stream stream{};
  };

  // The same, with communicators ended where it throws.
  template <typename Body>
  auto Guarded(Body body);
  std::string EndCommunicators() noexcept;

  TimeNs TimeAll(CudaWorkload& workload, int repeats);
  TimeNs TimeSome(CudaWorkload& workload, int repeats);
  TimeNs TimeSomeBeside(CudaWorkload& workload, int repeats);
  bool PostBeside(CudaWorkload& workload, int repeats);
  void PostGate(const CudaWorkload& workload, int repeats);
  int MostAtOnce(const CudaWorkload& workload) const;
  void MeasureGate(cuda::Stream stream);

  cuda::Layer* layer_;
  int device_;
  Bytes gate_bytes_;
  CudaMemory gate_;
  CudaOwned<cuda::Event> begin_;
  CudaOwned<cuda::Event> end_;
  CudaOwned<cuda::Event> open_;  // the gate's end
  TimeNs gate_ns_ = 0;           // of one fill
  std::vector<Other> others_;
  std::vector<Watched> watched_;
};

}  // namespace spiritlevel
