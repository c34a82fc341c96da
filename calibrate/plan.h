// Plan: which shapes are measured, in which order, and which of them the fits never see.
#pragma once

#include <string>
#include <vector>

#include "calibrate/device.h"
#include "calibrate/primitive.h"

namespace spiritlevel {

struct PlannedWork {
  Primitive primitive = Primitive::kGemmForward;
  Work work;         // not used for a hand-over, whose size is `units`
  double units = 0;  // as the primitive's fit counts; of one row where there are more
  int64_t rows = 1;
  std::string what;
  // Measured like the others and kept from the fit: how well it predicts is judged by these.
  bool held_out = false;
  // 0: the few that a profile cannot do without, small; later rounds fill in and are dropped where
  // time is short.
  int round = 0;
};

// Of a kernel whose time its primitive's fit tells. A norm's backward as a whole is none.
PlannedWork PlanKernel(const Kernel& kernel, int round, bool held_out);
PlannedWork PlanOptimizer(int64_t parameters, int round, bool held_out);
PlannedWork PlanHandOver(Bytes bytes, int round, bool held_out);

// By rounds, then small before large, so that it can be cut off anywhere. `element` is the size of
// what the device computes with.
std::vector<PlannedWork> MakePlan(bool quick, Bytes element);

}  // namespace spiritlevel
