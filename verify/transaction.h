// StageTransaction: where one stage of one rank stands between its passes and a validated step.
//
//                      StepEagerly           Validate
//   not_started ──┬──────────────► provisional ──────────────► validated
//        ▲        │                      │ RollBack                ▲
//        │        │ Skip                 ▼                         │
//        │        ├─────────► skipped ── │ ── StepRight ───────────┤
//        │        │                 rolled_back ── StepRight ──────┤
//        │        └──────────────── StepRight ─────────────────────┘
//        └── the first forward of the next iteration ──┘ (validated)
//
// It holds no tensors: whoever changes parameters asks here first, and every function ends the run
// with an InvariantError where it is not allowed. These hold at all times:
//
//   1. A step comes after every W of the iteration, once each.
//   2. An iteration is stepped once: a second step needs a rollback between them.
//   3. Only a provisional stage is rolled back; a skipped one never is.
//   4. Nobody reads parameters while they are changed, and a backward reads what its forward read.
//   5. A backward runs on validated parameters only; a forward may run ahead by one iteration, and
//      what it made is dropped when the version is rejected.
//
// docs/transactions.md has the protocol around it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/op.h"

namespace spiritlevel {

enum class StepState : uint8_t { kNotStarted, kProvisional, kSkipped, kValidated, kRolledBack };

std::string_view Name(StepState state);  // "not_started"

// Which micro-batches have had a pass.
class PassBitmap {
 public:
  explicit PassBitmap(int micro_batches) : done_(static_cast<size_t>(micro_batches), 0) {}

  void Add(int micro_batch);  // once
  bool has(int micro_batch) const;
  bool Equals(const std::vector<uint8_t>& expected) const { return done_ == expected; }
  bool empty() const;
  void Clear();

 private:
  std::vector<uint8_t> done_;
};

class StageTransaction {
 public:
  // `expected[i]`: whether this copy of the stage runs micro-batch i (DualPipe's two copies share
  // them). `iteration` is the first to run; what stands before it counts as validated.
  StageTransaction(int stage, int64_t iteration, int64_t version, std::vector<uint8_t> expected);

  int stage() const { return stage_; }
  StepState state() const { return state_; }
  // Whose gradients are being summed, or whose step is being judged.
  int64_t iteration() const { return iteration_; }
  // Counts settled and provisional iterations. A rejected version and the one that takes its place
  // have one number; the revision tells them apart.
  int64_t version() const { return version_; }
  int64_t revision() const { return revision_; }
  bool has_all_weight_grads() const { return weight_grads_.Equals(expected_); }
  // Forwards of the next iteration that have run on a version which nobody has judged yet.
  bool has_run_ahead() const { return !ahead_.empty(); }

  // A pass, before it runs. `Pass::kBW` is B and W at once. W has no parameters to read.
  void Run(Pass pass, int64_t iteration, int micro_batch);
  // Drops what ran ahead: it is run again.
  void DropAhead();

  void StepEagerly();
  void Skip();
  void Validate();
  void RollBack();
  // With the full norm known; an overflow leaves the parameters as they are, and counts.
  void StepRight();

  // Between the two, a pass reads parameters.
  void BeginReading();
  void EndReading();
  void StopReading() { readers_ = 0; }  // of a run that has failed

  // While it lives, parameters are changed.
  class Changing {
   public:
    explicit Changing(StageTransaction& at);
    ~Changing() { at_.is_changing_ = false; }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    StageTransaction& at_;
  };

 private:
  struct Version {
    int64_t number = 0;
    int64_t revision = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };
  Version now() const { return {version_, revision_}; }
  void Begin(int64_t iteration);
  void RunForward(int64_t iteration, int micro_batch);
  void RunInputGrad(int64_t iteration, int micro_batch);
  void RunWeightGrad(int64_t iteration, int micro_batch);

  int stage_;
  StepState state_ = StepState::kValidated;
  int64_t iteration_;
  int64_t version_;
  int64_t revision_ = 0;
  std::vector<uint8_t> expected_;
  PassBitmap forwards_;
  PassBitmap input_grads_;
  PassBitmap weight_grads_;
  PassBitmap ahead_;            // forwards of iteration_ + 1
  std::vector<Version> reads_;  // by micro-batch: what its last forward has read
  int readers_ = 0;
  bool is_changing_ = false;
};

}  // namespace spiritlevel
