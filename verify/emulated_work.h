// EmulatedWork: takes the time that the Program's costs say, and computes nothing.
//
// With it ordering and communication can be tried with more ranks than cores: a pass sleeps, so
// that its core is free for others. Its memory is that of the costs, not measured.
#pragma once

#include "verify/work.h"

namespace spiritlevel {

// A rank's live memory as the Program's costs have it: a meter for works that allocate nothing.
class LedgerMeter {
 public:
  explicit LedgerMeter(const RankContext& context)
      : program_(context.program),
        live_(Total(context.program.static_memory(context.rank))),
        peak_(live_) {}

  void AccountFor(NodeId node);
  Bytes TakePeakBytes();

 private:
  const Program& program_;
  Bytes live_;
  Bytes peak_;
};

class EmulatedWork : public RankWork {
 public:
  explicit EmulatedWork(const RankContext& context)
      : program_(context.program), stopping_(context.stopping), meter_(context) {}

  Payload RunOp(OpCall& call) override;
  std::pair<Payload, Payload> RunPair(OpCall& first, OpCall& second) override;
  void StepOptimizer(const StepCall& call) override { Take(call.node, call.start); }
  void RollBack(const StepCall& call) override { Take(call.node, call.start); }
  bool Validate(const ValidationCall& call) override;
  Payload Contribute(const SumCall&) override { return {}; }
  void Combine(const SumCall&, std::span<const std::span<const std::byte>>) override {}
  Bytes TakePeakBytes() override { return meter_.TakePeakBytes(); }
  void Abandon() noexcept override {}

 private:
  void Take(NodeId node, TimeNs start);

  const Program& program_;
  const std::atomic<bool>& stopping_;
  LedgerMeter meter_;
};

}  // namespace spiritlevel
