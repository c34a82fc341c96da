// Run under mpirun, one rank a process.
//
//   mpi_run all            every schedule for so many ranks, all postings and tails: what it
//                          computes is what a walk in order does, and its timelines are legal
//   mpi_run FAULT SEED     with a fault at a random place: prints the failure, the same on each
//   rank
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "sim/analysis/check_timeline.h"
#include "sim/event.h"
#include "tests/sim/random_case.h"
#include "tests/verify/reference_walk.h"
#include "tests/verify/traced_run.h"
#include "verify/mpi_session.h"

namespace spiritlevel {
namespace {

int Say(const MpiSession& mpi, const std::string& what, const std::string& wrong) {
  std::printf("process %d: %s: %s\n", mpi.rank(), what.c_str(), wrong.c_str());
  return 1;
}

int RunOne(const MpiSession& mpi, const Schedule& schedule, const Costs& costs,
           const LoweringOptions& options, const RunOptions& run_options, const std::string& what) {
  const Program program = Lower(schedule, costs, options);
  const RunReport report = RunProgram(program, Tracing(costs), run_options);
  if (report.failure) return Say(mpi, what, report.failure->message);
  if (mpi.rank() != 0) return 0;
  if (ResultsOf(report) != ReferenceWalk(schedule, costs, options, run_options.replicas).Run()) {
    return Say(mpi, what, "computes something else");
  }
  for (const Timeline& timeline : report.timelines) {
    const std::vector<Event> events = CollectEvents(program, timeline, options.iterations);
    const std::string findings =
        Words(CheckTimeline(events, std::nullopt)) +
        Words(CheckAccounts(events, AccountForStalls(program, costs, timeline)));
    if (!findings.empty()) return Say(mpi, what, findings);
  }
  return 0;
}

int RunAll(const MpiSession& mpi) {
  const Shape shape{.ranks = mpi.size(), .micro_batches = 2 * mpi.size()};
  int wrong = 0;
  int runs = 0;
  for (const ScheduleInfo& info : AllSchedules()) {
    if (info.Refusal(shape)) continue;
    const Schedule schedule = info.Make(shape);
    const Costs costs = UniformFor(schedule, kUnit);
    for (const Posting posting : {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched}) {
      for (const Tail tail : {Tail::kBarrier, Tail::kSpeculativeValidation}) {
        const LoweringOptions options{.posting = posting, .tail = tail, .iterations = 2};
        const std::string what = std::string(info.name) + " " + std::string(Name(posting));
        wrong += RunOne(mpi, schedule, costs, options, {.transport = Transport::kMpi}, what);
        ++runs;
      }
    }
  }
  // Replicas, sums of gradients and a rejection.
  const Schedule half = Make("zb-h1", mpi.size() / 2, mpi.size());
  RandomCase random(11);
  const Costs summed = random.WithSums(UniformFor(half, kUnit), true);
  wrong += RunOne(mpi, half, summed, {.tail = Tail::kStrictValidation, .iterations = 2},
                  {.transport = Transport::kMpi, .replicas = 2}, "replicas");
  const Schedule whole = Make("zb-h2", mpi.size(), 2 * mpi.size());
  wrong += RunOne(mpi, whole, UniformFor(whole, kUnit),
                  {.tail = Tail::kSpeculativeValidation, .iterations = 3, .rejected = {0}},
                  {.transport = Transport::kMpi}, "rejection");
  if (mpi.rank() == 0 && wrong == 0) std::printf("%d runs over MPI are right\n", runs + 2);
  return wrong;
}

int RunFault(const MpiSession& mpi, std::string_view name, unsigned seed) {
  constexpr int kKinds = static_cast<int>(FaultKind::kFailWork) + 1;
  int kind = 0;
  while (kind < kKinds && Name(static_cast<FaultKind>(kind)) != name) ++kind;
  if (kind == kKinds) return 2;
  const Schedule schedule = Make("zb-h1", mpi.size(), 2 * mpi.size());
  const Costs costs = UniformFor(schedule, kUnit);
  const Program program = Lower(schedule, costs, {.posting = Posting::kNcclFifo});
  RandomCase random(seed);
  Fault fault{.kind = static_cast<FaultKind>(kind)};
  fault.node =
      fault.kind <= FaultKind::kWrongMessage
          ? program.messages()[random.Below(static_cast<int>(program.messages().size()))].from
          : random.Below(program.num_lane_nodes());
  const RunReport report =
      RunProgram(program, Tracing(costs),
                 {.transport = Transport::kMpi, .stall_limit = 2'000'000'000, .faults = {fault}});
  if (!report.failure) return Say(mpi, "a fault", "nobody noticed it");
  std::printf("%s: %s\n", std::string(Name(report.failure->kind)).c_str(),
              report.failure->message.c_str());
  return 0;
}

}  // namespace
}  // namespace spiritlevel

int main(int argc, char** argv) {
  const spiritlevel::MpiSession mpi;
  if (argc == 2 && std::string_view(argv[1]) == "all") return spiritlevel::RunAll(mpi) == 0 ? 0 : 1;
  if (argc != 3) return 2;
  return spiritlevel::RunFault(mpi, argv[1], static_cast<unsigned>(std::atoi(argv[2])));
}
