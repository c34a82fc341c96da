// RunProgram(): executes a Program on real ranks and says what happened, as a Timeline.
//
//   const RunReport report = RunProgram(program, [&](const RankContext& c) {
//     return std::make_shared<EmulatedWork>(c);
//   });
//   if (report.failure) throw std::runtime_error(report.failure->message);
//   CollectEvents(program, report.timelines[0], program.num_iterations());
//
// Each rank is one thread, of this process or of its own. Communication has no thread: whoever
// completes something advances all lanes that this moves, and wakes who waits for it.
// docs/runtime.md has the rules.
//
// A run always comes back. A rank that dies, stalls, throws or finds a message that must not be,
// and ranks that wait for each other, end it on all ranks, with the same failure on each. Only
// where ranks are threads, one that is stuck inside its work cannot be ended from outside:
// `on_failure` hears of it at once, and RunProgram() returns once the work does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "sim/program.h"
#include "sim/timeline.h"
#include "verify/faults.h"
#include "verify/payload.h"
#include "verify/work.h"

namespace spiritlevel {

enum class Transport : uint8_t {
  kThreads,    // of this process; buffers change hands
  kProcesses,  // forked from this one, which must have no other thread; shared memory
  kMpi,        // one rank a process under mpirun, in a build with MPI
};

enum class FailureKind : uint8_t {
  kDied,          // a rank is gone
  kStalled,       // a rank is in one node for too long, and others wait
  kDeadlock,      // all ranks wait for each other
  kLostMessage,   // sent, and will not arrive
  kWrongMessage,  // arrived twice, or where another was to come
  kWork,          // the work threw
  kVerdict,       // a validation found what the Program was not lowered for
  kInternal,      // the runtime itself: out of shared memory, a check that failed
};

std::string_view Name(FailureKind kind);

struct Failure {
  FailureKind kind = FailureKind::kInternal;
  int rank = kNone;
  int replica = 0;
  int peer = kNone;     // the rank at the other end, or one that waits; kNone only without others
  NodeId node = kNone;  // that the rank was in, or before; kNone: not begun
  std::string op{};     // the same in words: "1BW3"
  std::string message{};
};

struct RunOptions {
  Transport transport = Transport::kThreads;
  int replicas = 1;
  // By rank, replica by replica: the core it is pinned to. Empty: none.
  std::vector<int> cores{};
  // How long a rank that waits looks again and again before it sleeps until it is woken, which
  // takes longer and varies more. None: by whether every rank can have a core of its own.
  std::optional<TimeNs> patience{};
  // Messages, collectives and launches take what the Program's costs say, on top of what they take
  // by themselves. For EmulatedWork; not under MPI.
  bool emulate_delays = false;
  // How long a rank may be in one node while others wait. None: five seconds, and four times the
  // longest node by the Program's costs.
  std::optional<TimeNs> stall_limit{};
  TimeNs setup_limit = 600'000'000'000;           // for all works to be made
  size_t shared_payload_bytes = size_t{1} << 32;  // set aside for messages between processes
  std::vector<Fault> faults{};
  // Called at once, and once, on a thread of the runtime.
  std::function<void(const Failure&)> on_failure{};
};

// For callers to whom a run that failed is the end: what a run was to find out is not known.
class RunFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct RunReport {
  std::optional<Failure> failure{};
  // By replica. Of a run that failed, what had ended by then; all else is zero.
  std::vector<Timeline> timelines{};
  std::vector<Payload> results{};  // by rank, replica by replica: what Finish() returned
  // By rank, replica by replica: the last node that ended, of its compute lane; kNone: none.
  std::vector<NodeId> last_ended{};
};

// Throws InputError where this build or this Program cannot be run so. Under MPI every process
// calls it, and rank 0 has the timelines and results of all; the failure is the same on each.
RunReport RunProgram(const Program& program, const WorkFactory& make_work,
                     const RunOptions& options = {});

bool HasMpi();  // this build

}  // namespace spiritlevel
