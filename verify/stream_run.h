// RunOnStreams(): executes a Program on GPUs and says what happened, as a Timeline.
//
//   const StreamPlan plan(program, predicted);
//   const StreamReport report = RunOnStreams(plan, layer, works, {.devices = {0, 0}});
//
// One thread of the host posts all that all ranks do, in the plan's order: lanes are streams, edges
// are events, those of communication have the higher priority. Ranks may share a device, whole or
// by partitions of its SMs; between them messages are copied on the device. Between devices they go
// by NCCL, each as a group of a send and a receive, on a communicator of its pair of ranks or, as
// the posting has it, of its directed pair.
//
// A message's buffer is taken from the receiver's pool when it is posted, and no buffer is used
// again before all streams that used it have come to that point. Collectives are formed from all
// members' contributions in their order, so that sums have the same bits on every rank.
//
// Times are those of timed events: a node starts when its stream has come to it and ends when its
// last kernel has. Devices' clocks are brought together before the run; `clock_error` bounds what
// is left of it.
//
// A run always comes back. Where nothing ends for `limit`, or a call fails, communicators are
// aborted and the failure names the rank, its op and its peer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/layer.h"
#include "sim/timeline.h"
#include "verify/run.h"
#include "verify/stream_plan.h"
#include "verify/stream_work.h"

namespace spiritlevel {

struct StreamRunOptions {
  std::vector<int> devices{};                 // by rank
  std::vector<cuda::Partition> partitions{};  // by rank; empty: whole devices
  Bytes capacity = 0;                         // of each rank's pool; 0: what there is
  TimeNs limit = 10'000'000'000;
  // What devices' clocks are brought together by. None: Now(). For tests, whose devices have times
  // of their own.
  std::function<TimeNs()> host_clock{};
};

struct StreamReport {
  std::optional<Failure> failure{};
  Timeline timeline{};
  std::vector<Payload> results{};  // by rank
  // By rank: what its pool held at most of the device, roundings included.
  std::vector<Bytes> most_held{};
  TimeNs clock_error = 0;
};

// Throws InputError where ranks and devices do not fit together.
StreamReport RunOnStreams(const StreamPlan& plan, cuda::Layer& layer,
                          const StreamWorkFactory& make_work, const StreamRunOptions& options);

}  // namespace spiritlevel
