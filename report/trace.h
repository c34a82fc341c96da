// A run for ui.perfetto.dev: Perfetto's protobuf trace format, TrackEvents.
//
// One process for each rank. In it a track for the compute lane, a counter for each category of
// memory that the rank ever holds, a track for each lane of sums that it has (gradients over
// replicas, gradients between ranks, what a validation waits for), and a track for each
// communication lane; an arrow (flow) joins the two ends of each message. docs/report.md lists
// every field that is written.
//
// Under `ideal` posting a message stands on its send lane while it is put on the link and on its
// receive lane while it comes off it: the link's occupancy, before and after the latency. Under the
// others it holds both lanes from its start until it is there, or until the next one starts. So the
// slices of a lane never overlap, though several messages may be under way. One that holds a lane
// for no time is an instant there.
//
// Time stamps are the timeline's nanoseconds, counter values its bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

// The viewer lives in a few GiB of memory, and needs several times the size of the file.
inline constexpr int64_t kMaxTraceNodes = 1'000'000;

struct TraceOptions {
  std::string title{};  // scenario and schedule
  int iterations = 1;   // of the program's, the first
  // Only what overlaps the window. Without one: everything, or the first kMaxTraceNodes of the
  // compute lanes where there are more; the file says so.
  std::optional<TimeNs> from{};
  std::optional<TimeNs> to{};
  // Without: arrows join the ops instead, and the file is half as large.
  bool communication_lanes = true;
  int64_t max_nodes = kMaxTraceNodes;
};

std::string PerfettoTrace(const Program& program, const Timeline& timeline,
                          const TraceOptions& options);

}  // namespace spiritlevel
