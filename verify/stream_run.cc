#include "verify/stream_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "verify/clock.h"
#include "verify/lane_plan.h"
#include "verify/node_calls.h"
#include "verify/routes.h"
#include "verify/stream_clock.h"
#include "verify/stream_link.h"
#include "verify/words.h"

namespace spiritlevel {
namespace {

using cuda::Buffer;
using cuda::Event;
using cuda::GpuError;
using cuda::Stream;

// Thrown where a wait of the host came to nothing.
struct NothingEnds {};

// Events of what the run is told by. Timed ones may be waited for, too.
struct NodeEvents {
  Event start{};
  Event end{};
};
struct MessageEvents {
  Event posted{};  // of its receive, under rendezvous
  Event start{};
  Event arrival{};
};

class StreamRunner : private StreamHost {
 public:
  StreamRunner(const StreamPlan& plan, cuda::Layer& layer, const StreamRunOptions& options)
      : plan_(plan),
        program_(plan.program()),
        lanes_(program_),
        routes_(program_),
        layer_(layer),
        options_(options),
        clock_(layer, options.devices, options.host_clock ? options.host_clock : Now) {}

  ~StreamRunner() override { TakeDown(); }

  StreamReport Run(const StreamWorkFactory& make_work) {
    try {
      SetUp(make_work);
      for (at_ = 0; at_ < plan_.num_steps(); ++at_) Issue(plan_.step(at_));
      WaitForAll();
      Read();
      for (auto& work : works_) report_.results.push_back(work->Finish());
    } catch (const NothingEnds&) {
      FailOpen(FailureKind::kStalled,
               fmt::format("nothing has ended for {} s", options_.limit / 1'000'000'000));
    } catch (const GpuError& error) {
      FailOpen(KindOf(error), error.what());
    } catch (const InvariantError& error) {
      FailAt(FailureKind::kInternal, error.what());
    } catch (const std::exception& error) {
      FailAt(FailureKind::kWork, error.what());
    }
    if (report_.failure) Abandon();
    for (const auto& pool : pools_) report_.most_held.push_back(pool->peak_held());
    report_.clock_error = clock_.error();
    return std::move(report_);
  }

 private:
  int device_of(int rank) const { return options_.devices[static_cast<size_t>(rank)]; }
  int rank_of(NodeId node) const { return lanes_.rank_of(node); }
  Stream stream(int32_t number) const { return streams_[static_cast<size_t>(number)]; }

  void SetUp(const StreamWorkFactory& make_work) {
    for (int32_t s = 0; s < plan_.num_streams(); ++s) {
      const int rank = plan_.rank_of_stream(s);
      const cuda::Partition partition =
          options_.partitions.empty() ? cuda::Partition{} : options_.partitions[rank];
      streams_.push_back(layer_.MakeStream(device_of(rank), partition, !plan_.is_compute(s)));
    }
    MakeEvents();
    links_ = std::make_unique<StreamLinks>(layer_, options_.devices);
    links_->Connect(plan_);
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      pools_.push_back(std::make_unique<cuda::BufferPool>(
          &layer_, device_of(rank),
          cuda::BufferPoolSettings{.capacity = options_.capacity,
                                   .patience_ms = static_cast<int>(options_.limit / 1'000'000)}));
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      works_.push_back(make_work({.program = program_,
                                  .rank = rank,
                                  .device = device_of(rank),
                                  .compute = stream(rank),
                                  .layer = layer_,
                                  .pool = *pools_[static_cast<size_t>(rank)],
                                  .host = *this}));
      SPIRITLEVEL_CHECK(works_.back() != nullptr, "every rank has a work");
    }
    inputs_.resize(program_.messages().size());
    cells_.resize(static_cast<size_t>(program_.num_ranks()));
    for (auto& cells : cells_) cells.resize(static_cast<size_t>(routes_.num_cells()));
    live_.assign(static_cast<size_t>(program_.num_lane_nodes()), 0);
    // What works have put on the devices is there before the clocks are read.
    for (const Stream s : streams_) layer_.Synchronize(s);
    clock_.Begin();
  }

  Event MakeEvent(int rank, bool timed) {
    events_.push_back(layer_.MakeEvent(device_of(rank), timed));
    return events_.back();
  }

  void MakeEvents() {
    nodes_.resize(static_cast<size_t>(program_.num_nodes()));
    for (NodeId id = 0; id < program_.num_nodes(); ++id) {
      if (program_.is_half(id) && lanes_.batch_of(id) != kNone) continue;
      const int rank = rank_of(id);
      nodes_[id].end = MakeEvent(rank, true);
      if (!program_.is_half(id) && !program_.is_batch(id)) nodes_[id].start = MakeEvent(rank, true);
    }
    for (MessageId m = 0; m < static_cast<MessageId>(program_.messages().size()); ++m) {
      const int from = rank_of(program_.send_node(m));
      const int to = rank_of(program_.receive_node(m));
      messages_.push_back({.posted = program_.rendezvous() ? MakeEvent(to, false) : Event{},
                           .start = MakeEvent(from, true),
                           .arrival = MakeEvent(to, true)});
    }
  }

  void Issue(const StreamPlan::Step& step) {
    for (const StreamPlan::Wait& wait : step.waits) {
      layer_.Wait(stream(wait.stream), nodes_[wait.for_end_of].end);
    }
    switch (step.kind) {
      case StreamPlan::StepKind::kCompute:
        Compute(step.node);
        break;
      case StreamPlan::StepKind::kPost:
        Post(step);
        break;
      case StreamPlan::StepKind::kTransfer:
        Transfer(step.messages.front());
        break;
      case StreamPlan::StepKind::kDone:
        layer_.Record(nodes_[step.node].end, stream(step.stream));
        break;
      case StreamPlan::StepKind::kCollective:
        Collect(step);
        break;
    }
  }

  // --- Compute

  void Compute(NodeId id) {
    const Node& node = program_.nodes()[id];
    const int rank = rank_of(id);
    const Stream on = stream(rank);
    layer_.Record(nodes_[id].start, on);
    StreamWork& work = *works_[static_cast<size_t>(rank)];
    switch (node.kind) {
      case NodeKind::kOptimizer:
        ContributeBeforeStep(node.iteration, rank);
        work.StepOptimizer({.node = id, .iteration = node.iteration}, on);
        break;
      case NodeKind::kValidation:
        Validate(id, work);
        break;
      case NodeKind::kRollback:
        RollBack(id, work);
        break;
      default:
        RunOps(id, work);
    }
    layer_.Record(nodes_[id].end, on);
    live_[id] = work.TakePeakBytes();
  }

  void RunOps(NodeId id, StreamWork& work) {
    const Node& node = program_.nodes()[id];
    StreamOpCall first = CallOf(id, 0, node.op);
    if (node.kind != NodeKind::kPair) return Keep(id, 0, work.RunOp(first));
    StreamOpCall second = CallOf(id, 1, program_.second_op(node));
    auto [of_first, of_second] = work.RunPair(first, second);
    Keep(id, 0, std::move(of_first));
    Keep(id, 1, std::move(of_second));
  }

  StreamOpCall CallOf(NodeId id, int which, const Op& op) {
    const Node& node = program_.nodes()[id];
    StreamOpCall call{.node = id,
                      .op = op,
                      .part = node.kind == NodeKind::kPart ? program_.part(node) : Part{},
                      .iteration = node.iteration,
                      .provisional = program_.is_provisional(id, rank_of(id)),
                      .dropped = node.kind == NodeKind::kDroppedOp,
                      .stream = stream(rank_of(id)),
                      .input = InputOf(id, which)};
    call.op.overlaps_next = false;
    return call;
  }

  Buffer InputOf(NodeId id, int which) {
    const Route& route = routes_.of(id, which);
    if (route.input_message != kNone) return std::move(inputs_[route.input_message]);
    if (route.input_cell == kNone) return {};
    return std::move(cells_[rank_of(id)][route.input_cell]);
  }

  void Keep(NodeId id, int which, Buffer output) {
    const Route& route = routes_.of(id, which);
    if (route.output_message != kNone) {
      outputs_[route.output_message] = std::move(output);
    } else if (route.output_cell != kNone) {
      cells_[rank_of(id)][route.output_cell] = std::move(output);
    }
  }

  void Validate(NodeId id, StreamWork& work) {
    const ValidationCall call = ValidationAt(program_, id, rank_of(id));
    const bool accepted = work.Validate(call, stream(rank_of(id)));
    if (!call.judges || accepted != call.rejected) return;
    FailAt(FailureKind::kVerdict,
           accepted ? "the step before was accepted, and the Program was lowered for its rejection"
                    : "the step before was rejected, and the Program was lowered for its "
                      "acceptance");
    throw NothingEnds();
  }

  void RollBack(NodeId id, StreamWork& work) {
    const Node& node = program_.nodes()[id];
    for (const MessageId m : program_.drained()[node.extra]) inputs_[m].Reset();
    for (Buffer& cell : cells_[rank_of(id)]) cell.Reset();
    work.RollBack({.node = id, .iteration = node.iteration}, stream(rank_of(id)));
  }

  // --- Messages

  void Post(const StreamPlan::Step& step) {
    for (const MessageId m : step.messages) {
      const bool receives = plan_.stream_of(program_.receive_node(m)) == step.stream;
      if (receives && program_.rendezvous())
        layer_.Record(messages_[m].posted, stream(step.stream));
    }
  }

  void Transfer(MessageId m) {
    const NodeId send = program_.send_node(m);
    const NodeId receive = program_.receive_node(m);
    const Stream from = stream(plan_.stream_of(send));
    const Stream to = stream(plan_.stream_of(receive));
    if (program_.rendezvous()) layer_.Wait(from, messages_[m].posted);
    Buffer data = std::move(outputs_.at(m));
    outputs_.erase(m);
    const StreamLinks::Side sender{
        .rank = rank_of(send), .lane = plan_.stream_of(send), .stream = from};
    const StreamLinks::Side receiver{
        .rank = rank_of(receive), .lane = plan_.stream_of(receive), .stream = to};
    layer_.Record(messages_[m].start, from);
    inputs_[m] = links_->Move(sender, receiver, data, *pools_[receiver.rank], messages_[m].arrival);
    if (!inputs_[m].empty()) inputs_[m].UsedOn(stream(receiver.rank));
  }

  // --- Collectives

  SumCall SumOf(NodeId member) const { return SumCallOf(lanes_, member, 0, 1); }

  void Collect(const StreamPlan::Step& step) {
    for (const NodeId member : step.members) {
      layer_.Record(nodes_[member].start, stream(plan_.stream_of(member)));
      if (joined_.count(member) == 0) Contribute(member, stream(plan_.stream_of(member)));
    }
    for (const NodeId member : step.members) Combine(step, member);
    for (const NodeId member : step.members) LetGo(step, member);
  }

  void Contribute(NodeId member, Stream on) {
    const int rank = rank_of(member);
    contributions_[member] = works_[rank]->Contribute(SumOf(member), on);
    joined_[member] = MakeEvent(rank, true);
    layer_.Record(joined_[member], on);
  }

  // What is validated is what the step was made of, which changes it: the Program has no edge for
  // that.
  void ContributeBeforeStep(int iteration, int rank) {
    if (!IsPostValidation(program_.tail())) return;
    const NodeId member = program_.reduction_node(program_.reduction_of(rank, iteration));
    if (joined_.count(member) != 0) {
      layer_.Wait(stream(rank), joined_[member]);
    } else {
      Contribute(member, stream(rank));
    }
  }

  // A member reads the others' contributions where they lie on its device, else copies of them.
  void Combine(const StreamPlan::Step& step, NodeId member) {
    const int rank = rank_of(member);
    const Stream on = stream(plan_.stream_of(member));
    std::vector<Buffer> copies;
    std::vector<const Buffer*> all;
    copies.reserve(step.members.size());
    for (const NodeId other : step.members) {
      Buffer& theirs = contributions_.at(other);
      layer_.Wait(on, joined_.at(other));
      all.push_back(&theirs);
      if (theirs.empty()) continue;
      if (device_of(rank_of(other)) == device_of(rank)) {
        theirs.UsedOn(on);
        continue;
      }
      copies.push_back(pools_[rank]->Take(cuda::TensorUse::kCommunication, theirs.bytes(), on));
      layer_.Copy(on, copies.back().data(), theirs.data(), theirs.bytes());
      all.back() = &copies.back();
    }
    works_[rank]->Combine(SumOf(member), on, all);
    layer_.Record(nodes_[member].end, on);
    if (member < program_.num_lane_nodes()) live_[member] = works_[rank]->TakePeakBytes();
  }

  // A pool knows streams of its own device. Where others have read, one of these waits for them.
  void LetGo(const StreamPlan::Step& step, NodeId member) {
    Buffer contribution = std::move(contributions_.at(member));
    contributions_.erase(member);
    if (contribution.empty()) return;
    const Stream on = stream(plan_.stream_of(member));
    contribution.UsedOn(on);
    for (const NodeId other : step.members) {
      if (device_of(rank_of(other)) == device_of(rank_of(member))) continue;
      layer_.Wait(on, nodes_[other].end);
    }
  }

  // --- Waiting

  // Ends once the event is done; throws where nothing at all has ended for the limit.
  void WaitFor(Event event) override {
    TimeNs since = Now();
    int ended = CountEnded();
    while (!layer_.IsDone(event)) {
      links_->CheckHealth();
      const int now_ended = CountEnded();
      if (now_ended != ended) {
        ended = now_ended;
        since = Now();
      } else if (Now() - since > options_.limit) {
        throw NothingEnds();
      }
      Pause();
    }
  }

  void WaitForAll() {
    for (int32_t s = 0; s < plan_.num_streams(); ++s) {
      if (const NodeId last = LastOn(s); last != kNone) WaitFor(nodes_[last].end);
    }
  }

  NodeId LastOn(int32_t stream) const {
    NodeId last = kNone;
    for (int i = plan_.num_steps() - 1; i >= 0 && last == kNone; --i) {
      const StreamPlan::Step step = plan_.step(i);
      if (step.kind == StreamPlan::StepKind::kPost) continue;
      if (step.kind == StreamPlan::StepKind::kTransfer) continue;
      for (const NodeId member : step.members) {
        if (plan_.stream_of(member) == stream) last = member;
      }
      if (step.members.empty() && step.stream == stream) last = step.node;
    }
    return last;
  }

  // Of the steps that were issued, how many have ended without a gap: it only grows.
  int CountEnded() {
    const int issued = std::min(at_, plan_.num_steps());
    while (ended_ < issued && HasEnded(plan_.step(ended_))) ++ended_;
    return ended_;
  }

  bool HasEnded(const StreamPlan::Step& step) {
    switch (step.kind) {
      case StreamPlan::StepKind::kPost:
        return true;
      case StreamPlan::StepKind::kTransfer:
        return layer_.IsDone(messages_[step.messages.front()].arrival);
      case StreamPlan::StepKind::kCollective:
        return std::all_of(step.members.begin(), step.members.end(),
                           [&](NodeId member) { return layer_.IsDone(nodes_[member].end); });
      default:
        return layer_.IsDone(nodes_[step.node].end);
    }
  }

  // --- Failures

  static FailureKind KindOf(const GpuError& error) {
    return error.kind() == cuda::GpuErrorKind::kTimeout ||
                   error.kind() == cuda::GpuErrorKind::kCommunication
               ? FailureKind::kStalled
               : FailureKind::kWork;
  }

  // Names the first step that has not ended, which is what the others wait for.
  void FailOpen(FailureKind kind, const std::string& what) {
    int open = std::min(ended_, plan_.num_steps() - 1);
    try {
      open = std::min(CountEnded(), plan_.num_steps() - 1);
    } catch (const GpuError&) {
      // A device that is lost says nothing more; what was known before stands.
    }
    FailIn(kind, plan_.step(open), what);
  }

  void FailAt(FailureKind kind, const std::string& what) {
    FailIn(kind, plan_.step(std::min(at_, plan_.num_steps() - 1)), what);
  }

  void FailIn(FailureKind kind, const StreamPlan::Step& step, const std::string& what) {
    if (report_.failure) return;
    Failure failure{.kind = kind, .rank = rank_of(step.node), .node = step.node};
    failure.op = NameWithIteration(lanes_, routes_, step.node);
    if (!step.messages.empty()) {
      failure.peer = rank_of(program_.receive_node(step.messages.front()));
      if (failure.peer == failure.rank) {
        failure.peer = rank_of(program_.send_node(step.messages.front()));
      }
    } else {
      failure.peer = program_.num_ranks() > 1 ? (failure.rank == 0 ? 1 : failure.rank - 1) : kNone;
    }
    failure.message = fmt::format("rank {}{}: {}: {}", failure.rank,
                                  failure.peer == kNone || step.messages.empty()
                                      ? ""
                                      : fmt::format(" with rank {}", failure.peer),
                                  failure.op, what);
    report_.failure = std::move(failure);
  }

  void Abandon() {
    if (links_ != nullptr) links_->Abort();
    for (auto& work : works_) work->Abandon();
  }

  // --- Times

  void Read() {
    Timeline& timeline = report_.timeline;
    timeline.nodes.resize(static_cast<size_t>(program_.num_lane_nodes()));
    timeline.messages.resize(program_.messages().size());
    timeline.reductions.resize(program_.reductions().size());
    for (MessageId m = 0; m < static_cast<MessageId>(messages_.size()); ++m) {
      const TimeNs start =
          clock_.Read(messages_[m].start, device_of(rank_of(program_.send_node(m))));
      const TimeNs end =
          clock_.Read(messages_[m].arrival, device_of(rank_of(program_.receive_node(m))));
      timeline.messages[m] = {.start = start, .arrival = std::max(start, end)};
    }
    for (size_t r = 0; r < program_.reductions().size(); ++r) {
      const NodeId id = program_.reduction_node(static_cast<int32_t>(r));
      timeline.reductions[r] = TimesOf(id);
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) ReadLane(rank);
  }

  // Of a member of a collective: when the last contribution was there, the same for all. What
  // forming the sum takes is a wait of whoever needs it.
  NodeTimes TimesOf(NodeId id) {
    const int device = device_of(rank_of(id));
    const TimeNs start = clock_.Read(nodes_[id].start, device);
    if (lanes_.member_of(id) == kNone) {
      return {.start = start, .end = std::max(start, clock_.Read(nodes_[id].end, device))};
    }
    TimeNs all_there = start;
    for (const NodeId member : program_.collectives()[lanes_.collective_of(id)].members) {
      const int members_device = device_of(rank_of(member));
      all_there = std::max({all_there, clock_.Read(joined_.at(member), members_device),
                            clock_.Read(nodes_[member].start, members_device)});
    }
    return {.start = all_there, .end = all_there, .ready = start};
  }

  // As the simulator has it: what it waits for beside its lane, and the lane alone where that is
  // all.
  void ReadLane(int rank) {
    TimeNs free = 0;
    for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
      NodeTimes times = TimesOf(id);
      times.start = std::max(times.start, free);
      times.end = std::max(times.end, times.start);
      times.ready = free;
      for (const MessageId m : program_.nodes()[id].inputs) {
        if (m == kNone) continue;
        const TimeNs arrival = std::min(report_.timeline.messages[m].arrival, times.start);
        report_.timeline.messages[m].arrival = arrival;
        if (arrival <= times.ready) continue;
        times.ready = arrival;
        times.cause = m;
      }
      times.live = live_[id];
      free = times.end;
      report_.timeline.nodes[id] = times;
    }
  }

  void TakeDown() noexcept {
    inputs_.clear();
    outputs_.clear();
    contributions_.clear();
    cells_.clear();
    works_.clear();
    pools_.clear();
    links_.reset();
    for (const Event event : events_) layer_.Destroy(event);
    for (const Stream s : streams_) layer_.Destroy(s);
  }

  const StreamPlan& plan_;
  const Program& program_;
  LanePlan lanes_;
  Routes routes_;
  cuda::Layer& layer_;
  const StreamRunOptions& options_;
  StreamClock clock_;
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::vector<NodeEvents> nodes_;
  std::vector<MessageEvents> messages_;
  std::map<NodeId, Event> joined_;  // by member: its contribution is there
  std::map<NodeId, Buffer> contributions_;
  std::unique_ptr<StreamLinks> links_;
  std::vector<std::unique_ptr<cuda::BufferPool>> pools_;
  std::vector<std::unique_ptr<StreamWork>> works_;
  std::vector<Buffer> inputs_;              // by message: arrived, or on its way
  std::map<MessageId, Buffer> outputs_;     // made, and not sent yet
  std::vector<std::vector<Buffer>> cells_;  // by rank: results that stay on it
  std::vector<Bytes> live_;
  StreamReport report_;
  int at_ = 0;     // the step that is issued
  int ended_ = 0;  // steps before it have ended
};

}  // namespace

StreamReport RunOnStreams(const StreamPlan& plan, cuda::Layer& layer,
                          const StreamWorkFactory& make_work, const StreamRunOptions& options) {
  const auto ranks = static_cast<size_t>(plan.program().num_ranks());
  if (options.devices.size() != ranks ||
      (!options.partitions.empty() && options.partitions.size() != ranks)) {
    throw InputError(fmt::format("{} ranks, and devices for {}", ranks, options.devices.size()),
                     "name a device for each rank");
  }
  for (const int device : options.devices) {
    if (device >= 0 && device < layer.NumDevices()) continue;
    throw InputError(fmt::format("there is no device {}", device),
                     fmt::format("there are {}", layer.NumDevices()));
  }
  return StreamRunner(plan, layer, options).Run(make_work);
}

}  // namespace spiritlevel
