// Costs: what each op of each stage costs, in time, memory and messages.
//
// Answers about an op and nothing else. Where the numbers come from (typed in, a profile and a
// model, a trace) is no business of sim/.
//
//   const Costs c = Costs::Uniform(/*stages=*/4, /*micro_batches=*/8,
//                                  {.forward = 1, .input_grad = 1, .weight_grad = 1,
//                                   .fused_backward = 2, .overlapped = 3});
//   c.of(/*stage=*/2, /*micro_batch=*/0).forward;  // 1
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/memory.h"
#include "sim/op.h"

namespace spiritlevel {

// One stage's share of one micro-batch.
struct StageCost {
  TimeNs forward = 0;
  TimeNs input_grad = 0;
  TimeNs weight_grad = 0;
  TimeNs fused_backward = 0;  // BW as one op
  TimeNs overlapped = 0;      // F&B: this stage's F beside this stage's BW
  Bytes activation = 0;       // kept from the start of F until the end of B or BW
  Bytes weight_state = 0;     // kept from B until the end of W; may exceed `activation`
  // By pass: held while it runs, above what lies on the rank at its start and at its end.
  std::array<Bytes, kNumPasses> transient{};

  TimeNs duration(Pass pass) const {
    switch (pass) {
      case Pass::kF:
        return forward;
      case Pass::kB:
        return input_grad;
      case Pass::kW:
        return weight_grad;
      case Pass::kBW:
        return fused_backward;
    }
    return 0;
  }

  friend bool operator==(const StageCost&, const StageCost&) = default;
};

// What one message costs between two different ranks.
struct HopCost {
  TimeNs latency = 0;  // from leaving the link to being usable at the receiver
  TimeNs busy = 0;     // how long it occupies its link; a link is FIFO, one for each direction
  Bytes bytes = 0;

  friend bool operator==(const HopCost&, const HopCost&) = default;
};

// Bytes that are summed over some ranks, all of which have the sum in the end.
struct GradientSum {
  Bytes bytes = 0;
  TimeNs duration = 0;

  friend bool operator==(const GradientSum&, const GradientSum&) = default;
};

// Gradients of one stage that are summed over the data-parallel replicas as one.
struct GradientBucket {
  // Of the time and memory of the stage's W, in proportion to the others'; at least 1.
  int64_t share = 1;
  GradientSum sum{};

  friend bool operator==(const GradientBucket&, const GradientBucket&) = default;
};

// Sums of gradients between a rank's last W and its optimizer step. All empty: none.
struct GradientSums {
  // By stage, in the order in which W fills them; each stage has at least one.
  std::vector<std::vector<GradientBucket>> buckets{};
  // By stage: of the two copies of one that lies on two ranks (DualPipe).
  std::vector<GradientSum> twins{};
  // Of the embedding, held by the ranks of the first and the last stage, where they are not one.
  std::vector<GradientSum> tied{};  // one, or none

  bool empty() const { return buckets.empty() && twins.empty() && tied.empty(); }
  friend bool operator==(const GradientSums&, const GradientSums&) = default;
};

class Costs {
 public:
  // What does not depend on stage or micro-batch.
  struct Common {
    HopCost hop{};
    TimeNs launch = 0;                         // delays the start of each op on its lane
    TimeNs optimizer = 0;                      // one rank's optimizer step
    std::vector<TimeNs> optimizer_by_stage{};  // and what each stage adds to its rank's
    TimeNs barrier = 0;                        // the collective of the `barrier` tail
    // What stays on a rank all the time: of one that holds 1/p of the model (DualPipe's hold two
    // such shares), or, where stages differ, of each stage.
    Bytes static_bytes = 0;
    std::vector<MemoryByCategory> static_by_stage{};
    // What a rank saves of both that holds the first stage and the last, whose embedding is one.
    MemoryByCategory tied_static{};
    TimeNs tied_optimizer = 0;
    GradientSums gradients{};

    friend bool operator==(const Common&, const Common&) = default;
  };

  // The same cost for every stage and micro-batch.
  static Costs Uniform(int stages, int micro_batches, const StageCost& cost);
  static Costs Uniform(int stages, int micro_batches, const StageCost& cost, const Common& common);

  // `table` has `stages` entries, or stages * micro_batches with the micro-batch running fastest.
  Costs(int stages, int micro_batches, std::vector<StageCost> table, const Common& common);

  int num_stages() const { return num_stages_; }
  int num_micro_batches() const { return num_micro_batches_; }

  const StageCost& of(int stage, int micro_batch) const {
    return table_[static_cast<size_t>(stage) * stage_stride_ +
                  static_cast<size_t>(micro_batch) * micro_batch_stride_];
  }
  // False when every micro-batch of a stage costs the same.
  bool varies_by_micro_batch() const { return micro_batch_stride_ != 0; }

  // True when no stage is slower than another for any micro-batch.
  bool stages_are_equal() const { return stages_are_equal_; }

  TimeNs duration(const Op& op) const { return of(op.stage, op.micro_batch).duration(op.pass); }

  // An F&B pair may join two stages. Each stage says what it saves by overlapping
  // (forward + fused_backward - overlapped); the pair saves the mean of the two, halves rounded
  // up in its time. `first` and `second` are an F and a BW, in either order.
  TimeNs overlapped_duration(const Op& first, const Op& second) const;

  // The message that carries a stage's output or input gradient to a neighbour on another rank.
  // One class of hop for now; who asks says which, so that classes can be told apart later.
  const HopCost& hop(int /*from_rank*/, int /*to_rank*/) const { return common_.hop; }

  const Common& common() const { return common_; }

  // Of a rank that holds `stages`, of a pipeline of `ranks`: parameters and all else that stays on
  // it, and its optimizer step.
  MemoryByCategory static_memory(std::span<const int> stages, int ranks) const;
  TimeNs optimizer(std::span<const int> stages) const;

  // Mean over stages of the pass for a micro-batch, as a fraction: sum / num_stages(). What a
  // perfectly balanced pipeline of the same model would take (see docs/stalls.md).
  TimeNs sum_over_stages(Pass pass, int micro_batch) const;

  friend bool operator==(const Costs&, const Costs&) = default;

 private:
  bool HoldsBothEnds(std::span<const int> stages) const;  // ascending

  int num_stages_ = 0;
  int num_micro_batches_ = 0;
  std::vector<StageCost> table_;
  size_t stage_stride_ = 1;
  size_t micro_batch_stride_ = 0;
  bool stages_are_equal_ = true;
  Common common_;
  std::vector<TimeNs> sums_;  // by pass, then by micro-batch where it varies
};

}  // namespace spiritlevel
