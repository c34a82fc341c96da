// RunGuard: what a user hears of a run that fails, and the end of one that does not come back.
//
// Of ranks that are threads, one that is stuck inside its work cannot be ended from outside, and
// RunProgram() waits for it. So a failure is said at once, and if the run has not come back a grace
// period later the process says so and exits with status 1. No output has been begun by then:
// outputs are written behind all runs.
//
//   const RunGuard guard("1f1b", grace);
//   options.on_failure = guard.listener();
//   RunProgram(program, works, options);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/units.h"
#include "verify/run.h"

namespace spiritlevel {

class RunGuard {
 public:
  // `what` is run, in a word.
  RunGuard(std::string what, TimeNs grace);
  ~RunGuard();  // the run has come back
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;

  // Called once. The guard must outlive the run.
  std::function<void(const Failure&)> listener() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace spiritlevel
