// The ways to give each rank a thread. RunProgram() picks one.
#pragma once

#include "verify/lane_plan.h"
#include "verify/routes.h"
#include "verify/run.h"

namespace spiritlevel {

struct RunSetting {
  const LanePlan& plan;
  const Routes& routes;
  const WorkFactory& make_work;
  const RunOptions& options;
  TimeNs patience = 0;

  int num_indices() const { return plan.program().num_ranks() * options.replicas; }
};

RunReport RunThreads(const RunSetting& setting);
RunReport RunProcesses(const RunSetting& setting);
RunReport RunMpi(const RunSetting& setting);

}  // namespace spiritlevel
