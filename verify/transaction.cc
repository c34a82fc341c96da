#include "verify/transaction.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace spiritlevel {

std::string_view Name(StepState state) {
  constexpr std::array<std::string_view, 5> kNames = {"not_started", "provisional", "skipped",
                                                      "validated", "rolled_back"};
  return kNames[static_cast<size_t>(state)];
}

void PassBitmap::Add(int micro_batch) {
  SPIRITLEVEL_CHECK(micro_batch >= 0 && static_cast<size_t>(micro_batch) < done_.size(),
                    "a pass is of a micro-batch of the iteration");
  uint8_t& done = done_[static_cast<size_t>(micro_batch)];
  SPIRITLEVEL_CHECK(done == 0, "a pass of a micro-batch runs once in an iteration");
  done = 1;
}

bool PassBitmap::has(int micro_batch) const {
  return micro_batch >= 0 && static_cast<size_t>(micro_batch) < done_.size() &&
         done_[static_cast<size_t>(micro_batch)] != 0;
}

bool PassBitmap::empty() const {
  return std::ranges::all_of(done_, [](uint8_t done) { return done == 0; });
}

void PassBitmap::Clear() { std::ranges::fill(done_, uint8_t{0}); }

StageTransaction::StageTransaction(int stage, int64_t iteration, int64_t version,
                                   std::vector<uint8_t> expected)
    : stage_(stage),
      iteration_(iteration - 1),
      version_(version),
      expected_(std::move(expected)),
      forwards_(static_cast<int>(expected_.size())),
      input_grads_(forwards_),
      weight_grads_(forwards_),
      ahead_(forwards_),
      reads_(expected_.size()) {}

void StageTransaction::Run(Pass pass, int64_t iteration, int micro_batch) {
  SPIRITLEVEL_CHECK(micro_batch >= 0 && static_cast<size_t>(micro_batch) < expected_.size() &&
                        expected_[static_cast<size_t>(micro_batch)] != 0,
                    "a copy of a stage runs its own micro-batches");
  if (pass == Pass::kF) return RunForward(iteration, micro_batch);
  if (pass != Pass::kW) RunInputGrad(iteration, micro_batch);
  if (pass != Pass::kB) RunWeightGrad(iteration, micro_batch);
}

// The forwards that ran ahead on a version which was then accepted are this iteration's.
void StageTransaction::Begin(int64_t iteration) {
  SPIRITLEVEL_CHECK(state_ == StepState::kValidated, "an iteration begins on a validated version");
  SPIRITLEVEL_CHECK(iteration == iteration_ + 1, "iterations follow each other");
  iteration_ = iteration;
  state_ = StepState::kNotStarted;
  std::swap(forwards_, ahead_);
  ahead_.Clear();
  input_grads_.Clear();
  weight_grads_.Clear();
}

void StageTransaction::RunForward(int64_t iteration, int micro_batch) {
  SPIRITLEVEL_CHECK(!is_changing_, "nobody reads a version while it is changed");
  reads_[static_cast<size_t>(micro_batch)] = now();
  if (iteration == iteration_ + 1 && state_ != StepState::kValidated) {
    SPIRITLEVEL_CHECK(state_ == StepState::kProvisional || state_ == StepState::kSkipped,
                      "a forward runs ahead only once its stage has decided about its step");
    return ahead_.Add(micro_batch);
  }
  if (iteration == iteration_ + 1) Begin(iteration);
  SPIRITLEVEL_CHECK(iteration == iteration_ && state_ == StepState::kNotStarted,
                    "a forward is of this iteration, before its step, or of the next");
  forwards_.Add(micro_batch);
}

void StageTransaction::RunInputGrad(int64_t iteration, int micro_batch) {
  SPIRITLEVEL_CHECK(!is_changing_, "nobody reads a version while it is changed");
  if (iteration == iteration_ + 1) Begin(iteration);
  SPIRITLEVEL_CHECK(iteration == iteration_ && state_ == StepState::kNotStarted,
                    "a backward runs on a validated version, before its iteration's step");
  SPIRITLEVEL_CHECK(forwards_.has(micro_batch), "a backward comes after its forward");
  SPIRITLEVEL_CHECK(reads_[static_cast<size_t>(micro_batch)] == now(),
                    "a backward reads the version that its forward has read");
  input_grads_.Add(micro_batch);
}

void StageTransaction::RunWeightGrad(int64_t iteration, int micro_batch) {
  SPIRITLEVEL_CHECK(iteration == iteration_ && state_ == StepState::kNotStarted,
                    "a weight gradient is summed before its iteration's step");
  SPIRITLEVEL_CHECK(input_grads_.has(micro_batch), "a weight gradient comes after its B");
  weight_grads_.Add(micro_batch);
}

void StageTransaction::DropAhead() {
  SPIRITLEVEL_CHECK(state_ != StepState::kValidated || ahead_.empty(),
                    "what was made from an accepted version is kept");
  ahead_.Clear();
}

void StageTransaction::StepEagerly() {
  SPIRITLEVEL_CHECK(state_ == StepState::kNotStarted, "an iteration is stepped once");
  SPIRITLEVEL_CHECK(has_all_weight_grads(), "a step comes after every weight gradient");
  state_ = StepState::kProvisional;
  ++version_;
}

void StageTransaction::Skip() {
  SPIRITLEVEL_CHECK(state_ == StepState::kNotStarted, "a stage that has stepped is not skipped");
  SPIRITLEVEL_CHECK(has_all_weight_grads(), "a stage is skipped after every weight gradient");
  state_ = StepState::kSkipped;
}

void StageTransaction::Validate() {
  SPIRITLEVEL_CHECK(state_ == StepState::kProvisional, "only a provisional step is validated");
  state_ = StepState::kValidated;
}

void StageTransaction::RollBack() {
  SPIRITLEVEL_CHECK(state_ == StepState::kProvisional,
                    "only a provisional step is rolled back, a skipped one never");
  SPIRITLEVEL_CHECK(ahead_.empty(), "what was made from a rejected version is dropped before");
  state_ = StepState::kRolledBack;
  --version_;
}

void StageTransaction::StepRight() {
  SPIRITLEVEL_CHECK(state_ == StepState::kSkipped || state_ == StepState::kRolledBack ||
                        state_ == StepState::kNotStarted,
                    "an iteration is stepped once");
  SPIRITLEVEL_CHECK(has_all_weight_grads(), "a step comes after every weight gradient");
  SPIRITLEVEL_CHECK(ahead_.empty(), "what was made from a rejected version is dropped before");
  state_ = StepState::kValidated;
  ++version_;
  ++revision_;
}

void StageTransaction::BeginReading() {
  SPIRITLEVEL_CHECK(!is_changing_, "nobody reads a version while it is changed");
  ++readers_;
}

void StageTransaction::EndReading() {
  SPIRITLEVEL_CHECK(readers_ > 0, "a pass ends once");
  --readers_;
}

StageTransaction::Changing::Changing(StageTransaction& at) : at_(at) {
  SPIRITLEVEL_CHECK(at_.readers_ == 0, "nobody changes a version while it is read");
  SPIRITLEVEL_CHECK(!at_.is_changing_, "a version is changed by one at a time");
  at_.is_changing_ = true;
}

}  // namespace spiritlevel
