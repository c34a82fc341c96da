#include "verify/rank_runner.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/cores.h"
#include "verify/clock.h"
#include "verify/node_calls.h"

namespace spiritlevel {

bool RankRunner::Run() noexcept {
  bool completed = false;
  try {
    MakeWork();
    RunLane();
    completed = true;
  } catch (const Stopped&) {
  } catch (const Killed&) {
    return false;
  } catch (const InvariantError& error) {
    exchange_.Fail(FailureKind::kInternal, at_, error.what());
  } catch (const std::exception& error) {
    exchange_.Fail(FailureKind::kWork, at_, error.what());
  } catch (...) {
    exchange_.Fail(FailureKind::kWork, at_, "an exception of no known type");
  }
  if (!completed) {
    if (work_ != nullptr) work_->Abandon();
    outputs_.clear();
    cells_.clear();
  }
  return true;
}

void RankRunner::MakeWork() {
  const size_t index = static_cast<size_t>(setting_.replica * program_.num_ranks() + setting_.rank);
  if (!setting_.options.cores.empty()) {
    cpu::PinThisThread({setting_.options.cores[index]});
  }
  SleepPrecisely();
  cells_.resize(static_cast<size_t>(setting_.routes.num_cells()));
  cell_is_set_.assign(cells_.size(), 0);
  work_ = setting_.make_work({.program = program_,
                              .rank = setting_.rank,
                              .replica = setting_.replica,
                              .replicas = setting_.options.replicas,
                              .stopping = exchange_.stopping(),
                              .side = exchange_.side_channel()});
  SPIRITLEVEL_CHECK(work_ != nullptr, "every rank has a work");
}

void RankRunner::RunLane() {
  lane_free_ = exchange_.Meet();
  for (NodeId id = program_.rank_begin(setting_.rank); id < program_.rank_end(setting_.rank);
       ++id) {
    at_ = id;
    RunNode(id);
  }
  SPIRITLEVEL_CHECK(
      std::all_of(cell_is_set_.begin(), cell_is_set_.end(), [](uint8_t set) { return set == 0; }),
      "what is made on a rank for itself is used there");
  exchange_.ServeOut(*this);
  exchange_.Leave(work_->Finish());
}

void RankRunner::RunNode(NodeId node) {
  const TimeNs head = exchange_.Wait(node, *this);
  if (program_.nodes()[node].kind == NodeKind::kCollective) return RunCollective(node, head);
  NodeTimes times = TimesOf(node, head);
  if (const TimeNs launch = LaunchOf(node); launch > 0) {
    WaitUntil(std::max(lane_free_, times.ready) + launch, exchange_.stopping());
  }
  times.start = std::max({Now(), lane_free_, head});
  SufferFaults(node);
  outputs_.clear();
  DoWork(node, times.start);
  times.end = std::max(Now(), times.start);
  times.live = work_->TakePeakBytes();
  lane_free_ = times.end;
  exchange_.End(node, times, outputs_);
}

void RankRunner::RunCollective(NodeId node, TimeNs head) {
  SufferFaults(node);
  NodeTimes times = exchange_.JoinAndWait(node, std::max(head, lane_free_), *this);
  times.live = work_->TakePeakBytes();
  lane_free_ = std::max(lane_free_, times.end);
  exchange_.End(node, times, {});
}

// As the simulator has it: what it waits for beside its lane, and the lane alone where that is all.
NodeTimes RankRunner::TimesOf(NodeId id, TimeNs head) const {
  const Node& node = program_.nodes()[id];
  NodeTimes times;
  TimeNs latest = -1;
  MessageId last = kNone;
  for (const MessageId m : node.inputs) {
    if (m == kNone) continue;
    const TimeNs arrival = exchange_.ArrivalOf(m);
    if (arrival <= latest) continue;
    latest = arrival;
    last = m;
  }
  times.ready = head > lane_free_ ? head : last != kNone ? latest : lane_free_;
  times.cause = times.ready > lane_free_ ? last : kNone;
  return times;
}

TimeNs RankRunner::LaunchOf(NodeId node) const {
  const int32_t cost = program_.nodes()[node].cost;
  return setting_.options.emulate_delays && cost != kNone ? program_.costs()[cost].launch : 0;
}

void RankRunner::DoWork(NodeId id, TimeNs start) {
  const Node& node = program_.nodes()[id];
  switch (node.kind) {
    case NodeKind::kOptimizer:
      work_->StepOptimizer({.node = id, .iteration = node.iteration, .start = start});
      break;
    case NodeKind::kValidation:
      Validate(id);
      break;
    case NodeKind::kRollback:
      RollBack(id, start);
      break;
    default:
      RunOps(id, start);
  }
}

void RankRunner::RunOps(NodeId id, TimeNs start) {
  const Node& node = program_.nodes()[id];
  OpCall first = CallOf(id, 0, node.op, start);
  if (node.kind != NodeKind::kPair) {
    Keep(setting_.routes.of(id, 0), work_->RunOp(first));
    return;
  }
  OpCall second = CallOf(id, 1, program_.second_op(node), start);
  auto [of_first, of_second] = work_->RunPair(first, second);
  Keep(setting_.routes.of(id, 0), std::move(of_first));
  Keep(setting_.routes.of(id, 1), std::move(of_second));
}

OpCall RankRunner::CallOf(NodeId id, int which, const Op& op, TimeNs start) {
  const Node& node = program_.nodes()[id];
  OpCall call{.node = id,
              .op = op,
              .part = node.kind == NodeKind::kPart ? program_.part(node) : Part{},
              .iteration = node.iteration,
              .provisional = program_.is_provisional(id, setting_.rank),
              .dropped = node.kind == NodeKind::kDroppedOp,
              .start = start,
              .input = InputOf(setting_.routes.of(id, which))};
  call.op.overlaps_next = false;
  return call;
}

Payload RankRunner::InputOf(const Route& route) {
  if (route.input_message != kNone) return exchange_.Take(route.input_message);
  if (route.input_cell == kNone) return {};
  uint8_t& is_set = cell_is_set_[route.input_cell];
  SPIRITLEVEL_CHECK(is_set != 0, "what an op needs of its own rank was made before it");
  is_set = 0;
  return std::move(cells_[route.input_cell]);
}

void RankRunner::Keep(const Route& route, Payload output) {
  if (route.output_message != kNone) {
    outputs_.push_back({route.output_message, std::move(output)});
  } else if (route.output_cell != kNone) {
    uint8_t& is_set = cell_is_set_[route.output_cell];
    SPIRITLEVEL_CHECK(is_set == 0, "a result is used before the next takes its place");
    is_set = 1;
    cells_[route.output_cell] = std::move(output);
  }
}

void RankRunner::Validate(NodeId id) {
  const ValidationCall call = ValidationAt(program_, id, setting_.rank);
  const bool accepted = work_->Validate(call);
  if (!call.judges || accepted != call.rejected) return;
  exchange_.Fail(FailureKind::kVerdict, id,
                 accepted ? "the step before was accepted, and the Program was lowered for its "
                            "rejection"
                          : "the step before was rejected, and the Program was lowered for its "
                            "acceptance");
  throw Stopped();
}

// What was made from the rejected version and is still on its way or waits here, is let go.
void RankRunner::RollBack(NodeId id, TimeNs start) {
  const Node& node = program_.nodes()[id];
  for (const MessageId m : program_.drained()[node.extra]) exchange_.Take(m);
  for (Payload& cell : cells_) cell.Reset();
  std::fill(cell_is_set_.begin(), cell_is_set_.end(), 0);
  work_->RollBack({.node = id, .iteration = node.iteration, .start = start});
}

void RankRunner::SufferFaults(NodeId node) {
  for (const Fault& fault : setting_.options.faults) {
    if (fault.node != node || fault.replica != setting_.replica) continue;
    const bool is_process = setting_.options.transport != Transport::kThreads;
    switch (fault.kind) {
      case FaultKind::kKillRank:
        if (is_process) ::kill(::getpid(), SIGKILL);
        throw Killed();
      case FaultKind::kStallRank:
        if (is_process) ::kill(::getpid(), SIGSTOP);
        while (!exchange_.stopping().load()) WaitUntil(Now() + 1'000'000, exchange_.stopping());
        throw Stopped();
      case FaultKind::kFailWork:
        throw std::runtime_error("an injected failure");
      default:
        break;  // of messages: the exchange's business
    }
  }
}

SumCall RankRunner::SumOf(NodeId member) const {
  return SumCallOf(setting_.plan, member, setting_.replica, setting_.options.replicas);
}

Payload RankRunner::Contribute(NodeId member) { return work_->Contribute(SumOf(member)); }

void RankRunner::Combine(NodeId member, std::span<const std::span<const std::byte>> contributions) {
  work_->Combine(SumOf(member), contributions);
}

}  // namespace spiritlevel
