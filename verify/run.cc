#include "verify/run.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "kernels/cpu/cores.h"
#include "verify/transports.h"

namespace spiritlevel {
namespace {

// Longer than most waits of a pipeline are. Looking does not offer the core to others: who sleeps
// is let in before who has offered.
constexpr TimeNs kPatienceOnOwnCore = 2'000'000;

// Where ranks share cores, who waits must not keep others from working.
constexpr TimeNs kPatienceOnSharedCores = 0;

void Require(bool condition, const std::string& what, const std::string& way_out) {
  if (!condition) throw InputError(what, way_out);
}

void CheckOptions(const Program& program, const RunOptions& options) {
  const int ranks = program.num_ranks() * options.replicas;
  Require(options.replicas >= 1, fmt::format("{} replicas of the pipeline", options.replicas),
          "one or more");
  Require(options.cores.empty() || static_cast<int>(options.cores.size()) == ranks,
          fmt::format("{} cores are named for {} ranks", options.cores.size(), ranks),
          "name one for each rank, or none");
  for (const Fault& fault : options.faults) {
    Require(fault.node >= 0 && fault.node < program.num_lane_nodes(),
            fmt::format("a fault at node {}", fault.node), "compute nodes are counted from 0");
  }
}

TimeNs PatienceOf(const Program& program, const RunOptions& options) {
  if (options.patience) return *options.patience;
  const size_t ranks = static_cast<size_t>(program.num_ranks() * options.replicas);
  return ranks <= cpu::UsableCores().size() ? kPatienceOnOwnCore : kPatienceOnSharedCores;
}

}  // namespace

std::string_view Name(FailureKind kind) {
  constexpr std::array<std::string_view, 8> kNames = {"died",         "stalled",       "deadlock",
                                                      "lost-message", "wrong-message", "work",
                                                      "verdict",      "internal"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view Name(FaultKind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "lose-message", "delay-message", "double-message", "wrong-message",
      "kill-rank",    "stall-rank",    "fail-work"};
  return kNames[static_cast<size_t>(kind)];
}

RunReport RunProgram(const Program& program, const WorkFactory& make_work,
                     const RunOptions& options) {
  CheckOptions(program, options);
  const LanePlan plan(program);
  const Routes routes(program);
  const RunSetting setting{.plan = plan,
                           .routes = routes,
                           .make_work = make_work,
                           .options = options,
                           .patience = PatienceOf(program, options)};
  switch (options.transport) {
    case Transport::kThreads:
      return RunThreads(setting);
    case Transport::kProcesses:
      return RunProcesses(setting);
    case Transport::kMpi:
      return RunMpi(setting);
  }
  throw InvariantError("no such transport");
}

}  // namespace spiritlevel
