// A work that computes hashes: what an op returns is a hash of all it depends on, so that a single
// op that saw another input, or saw it at another time, leaves other parameters behind.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "verify/emulated_work.h"
#include "verify/work.h"

namespace spiritlevel {

using Hash = uint64_t;

// FNV-1a over the numbers' bytes, with what a number stands for told by its place.
inline Hash HashOf(std::initializer_list<uint64_t> numbers) {
  Hash hash = 14695981039346656037ULL;
  for (uint64_t number : numbers) {
    for (int i = 0; i < 8; ++i, number >>= 8) hash = (hash ^ (number & 255)) * 1099511628211ULL;
  }
  return hash;
}

inline constexpr uint64_t kForward = 1;
inline constexpr uint64_t kInputGrad = 2;
inline constexpr uint64_t kWeightGrad = 3;
inline constexpr uint64_t kSum = 4;
inline constexpr uint64_t kNorm = 5;
inline constexpr uint64_t kStep = 6;

// One stage as one rank holds it: what an optimizer step reads and writes.
struct TracedStage {
  Hash parameters = 0;
  std::vector<Hash> gradients{};  // by bucket
};

inline Hash FirstParameters(int stage) { return HashOf({kStep, static_cast<uint64_t>(stage)}); }
inline Hash FirstInput(int replica, int iteration, int micro_batch) {
  return HashOf({kForward, static_cast<uint64_t>(replica), static_cast<uint64_t>(iteration),
                 static_cast<uint64_t>(micro_batch)});
}
inline Hash Output(Hash parameters, Hash input) { return HashOf({kForward, parameters, input}); }
inline Hash InputGradient(Hash output, Hash gradient) {
  return HashOf({kInputGrad, output, gradient});
}
inline void AddWeightGradient(Hash& bucket, Hash input_gradient) {
  bucket = HashOf({kWeightGrad, bucket, input_gradient});
}
inline Hash HashOfGradients(const TracedStage& stage) {
  Hash hash = 0;
  for (const Hash gradient : stage.gradients) hash = HashOf({kSum, hash, gradient});
  return hash;
}
inline Hash Stepped(const TracedStage& stage, Hash norm) {
  return HashOf({kStep, stage.parameters, HashOfGradients(stage), norm});
}
inline Hash SumOfAll(std::span<const Hash> contributions) {
  Hash sum = 0;
  for (const Hash each : contributions) sum = HashOf({kSum, sum, each});
  return sum;
}

// What a rank has in the end; also the bytes that Finish() returns.
struct TracedResult {
  Hash parameters = 0;  // of all its stages
  Hash norms = 0;       // all that were found, in their order
  int64_t kept = 0;     // activations and weight states that nobody has used

  friend bool operator==(const TracedResult&, const TracedResult&) = default;
};

class TracingWork : public RankWork {
 public:
  TracingWork(const RankContext& context, const std::vector<int>& buckets)
      : replica_(context.replica), meter_(context) {
    for (const int stage : context.program.stages_of(context.rank)) {
      stages_[stage] = {.parameters = FirstParameters(stage),
                        .gradients = std::vector<Hash>(static_cast<size_t>(buckets[stage]), 0)};
    }
  }

  Payload RunOp(OpCall& call) override {
    meter_.AccountFor(call.node);
    return RunOne(call);
  }
  std::pair<Payload, Payload> RunPair(OpCall& first, OpCall& second) override {
    meter_.AccountFor(first.node);
    Payload of_first = RunOne(first);
    return {std::move(of_first), RunOne(second)};
  }

  void StepOptimizer(const StepCall& call) override {
    meter_.AccountFor(call.node);
    before_step_ = stages_;
    for (auto& [number, stage] : stages_) {
      stage.parameters = Stepped(stage, barrier_norm_);
      std::fill(stage.gradients.begin(), stage.gradients.end(), 0);
    }
    barrier_norm_ = 0;
  }

  void RollBack(const StepCall& call) override {
    meter_.AccountFor(call.node);
    for (auto& [number, stage] : stages_) {
      stage.parameters = Stepped(before_step_.at(number), last_norm_);
    }
  }

  bool Validate(const ValidationCall& call) override {
    meter_.AccountFor(call.node);
    if (call.rejected) outputs_.clear();
    return !call.rejected;
  }

  Payload Contribute(const SumCall& call) override {
    Hash hash = 0;
    if (call.kind == NodeKind::kBucketSum) {
      hash = stages_.at(call.stage).gradients.at(static_cast<size_t>(call.bucket));
    } else if (SumsGradients(call.kind)) {
      hash = HashOfGradients(stages_.at(call.stage));
    } else {
      for (const auto& [number, stage] : stages_) {
        hash = HashOf({kNorm, hash, HashOfGradients(stage)});
      }
    }
    return PayloadOf(hash);
  }

  void Combine(const SumCall& call,
               std::span<const std::span<const std::byte>> contributions) override {
    std::vector<Hash> all;
    for (const std::span<const std::byte> each : contributions) all.push_back(HashIn(each));
    if (static_cast<int>(all.size()) != call.num_members) throw std::logic_error("members");
    const Hash sum = SumOfAll(all);
    if (call.kind == NodeKind::kBucketSum) {
      stages_.at(call.stage).gradients.at(static_cast<size_t>(call.bucket)) = sum;
    } else if (SumsGradients(call.kind)) {
      uint64_t bucket = 0;
      for (Hash& gradient : stages_.at(call.stage).gradients) {
        gradient = HashOf({sum, bucket++});
      }
    } else {
      last_norm_ = sum;
      if (call.kind == NodeKind::kCollective) barrier_norm_ = sum;
      result_.norms = HashOf({result_.norms, sum});
    }
  }

  Bytes TakePeakBytes() override { return meter_.TakePeakBytes(); }

  void Abandon() noexcept override {
    outputs_.clear();
    input_gradients_.clear();
  }

  Payload Finish() override {
    for (const auto& [number, stage] : stages_) {
      result_.parameters = HashOf({result_.parameters, stage.parameters});
    }
    result_.kept = static_cast<int64_t>(outputs_.size() + input_gradients_.size());
    return Payload::CopyOf(std::as_bytes(std::span(&result_, 1)));
  }

 private:
  using Cell = std::pair<int, int>;  // stage, micro-batch

  static Payload PayloadOf(Hash hash) {
    return Payload::CopyOf(std::as_bytes(std::span(&hash, 1)));
  }
  static Hash HashIn(std::span<const std::byte> bytes) {
    Hash hash = 0;
    if (bytes.size() != sizeof(hash)) throw std::logic_error("a payload is one hash");
    std::memcpy(&hash, bytes.data(), sizeof(hash));
    return hash;
  }

  Payload RunOne(OpCall& call) {
    const Cell cell{call.op.stage, call.op.micro_batch};
    switch (call.op.pass) {
      case Pass::kF:
        return RunForward(call, cell);
      case Pass::kB:
        return PayloadOf(input_gradients_[cell] = RunInputGrad(call, cell));
      case Pass::kW:
        RunWeightGrad(call, cell, input_gradients_.at(cell));
        return {};
      case Pass::kBW:
        if (call.part.index == 0) input_gradients_[cell] = RunInputGrad(call, cell);
        const Hash gradient = input_gradients_.at(cell);
        RunWeightGrad(call, cell, gradient);
        return PayloadOf(gradient);
    }
    throw std::logic_error("no such pass");
  }

  Payload RunForward(OpCall& call, const Cell& cell) {
    const Hash input = call.op.stage == 0
                           ? FirstInput(replica_, call.iteration, call.op.micro_batch)
                           : HashIn(call.input.bytes());
    const Hash output = Output(stages_.at(call.op.stage).parameters, input);
    if (!outputs_.emplace(cell, output).second) throw std::logic_error("F twice");
    return PayloadOf(output);
  }

  Hash RunInputGrad(OpCall& call, const Cell& cell) {
    const auto output = outputs_.extract(cell);
    if (output.empty()) throw std::logic_error("a backward without its forward");
    // The last stage's comes from its loss.
    const Hash gradient =
        call.input.has_buffer() ? HashIn(call.input.bytes()) : HashOf({kInputGrad, 0});
    return InputGradient(output.mapped(), gradient);
  }

  void RunWeightGrad(const OpCall& call, const Cell& cell, Hash gradient) {
    std::vector<Hash>& buckets = stages_.at(call.op.stage).gradients;
    if (call.part.count == 1) {
      for (Hash& bucket : buckets) AddWeightGradient(bucket, gradient);
    } else {
      AddWeightGradient(buckets.at(static_cast<size_t>(call.part.index)), gradient);
    }
    if (call.part.index + 1 == call.part.count) input_gradients_.erase(cell);
  }

  int replica_;
  LedgerMeter meter_;
  std::map<int, TracedStage> stages_;
  std::map<int, TracedStage> before_step_;
  std::map<Cell, Hash> outputs_;
  std::map<Cell, Hash> input_gradients_;
  Hash barrier_norm_ = 0;
  Hash last_norm_ = 0;
  TracedResult result_;
};

}  // namespace spiritlevel
