// Programs run on a fake device whose streams go in any order that CUDA permits, by works that add
// numbers: what they come to is held against plain loops, and what they touch against the order
// that streams and events promise.
#include "verify/stream_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine.h"
#include "tests/kernels/cuda/fake_layer.h"
#include "tests/verify/traced_run.h"
#include "verify/emulated_work.h"

namespace spiritlevel {
namespace {

using cuda::Buffer;
using cuda::ElementType;
using cuda::FakeLayer;
using cuda::GpuErrorKind;
using cuda::Stream;
using cuda::TensorUse;
using testing::HasSubstr;
using testing::IsEmpty;

// Small whole numbers, so that no sum of floats is rounded.
//
//   F: out = in + parameter          B: d = dout + out         W: gradient += d
//   step: parameter += gradient      norm: the sum of the gradients of all stages of all ranks
class AddingWork : public StreamWork {
 public:
  explicit AddingWork(const StreamContext& context)
      : context_(context), stopping_(false), meter_(RankContextOf(context, stopping_)) {
    for (const int stage : context.program.stages_of(context.rank)) {
      parameters_[stage] = Number(stage + 1, context.compute);
      gradients_[stage] = Number(0, context.compute);
    }
    norms_ = Number(0, context.compute);
  }

  Buffer RunOp(StreamOpCall& call) override {
    meter_.AccountFor(call.node);
    return RunOne(call);
  }
  std::pair<Buffer, Buffer> RunPair(StreamOpCall& first, StreamOpCall& second) override {
    meter_.AccountFor(first.node);
    Buffer of_first = RunOne(first);
    return {std::move(of_first), RunOne(second)};
  }

  void StepOptimizer(const StepCall& call, Stream stream) override {
    meter_.AccountFor(call.node);
    for (auto& [stage, parameter] : parameters_) {
      before_[stage] = CopyOf(parameter, stream);
      AddTo(parameter, gradients_.at(stage), stream);
      Set(gradients_.at(stage), 0, stream);
    }
  }

  // The right step is none.
  void RollBack(const StepCall& call, Stream stream) override {
    meter_.AccountFor(call.node);
    for (auto& [stage, parameter] : parameters_) {
      context_.layer.Copy(stream, parameter.data(), before_.at(stage).data(), 4);
    }
  }

  // Reads the norm on the host, as a real one does.
  bool Validate(const ValidationCall& call, Stream stream) override {
    meter_.AccountFor(call.node);
    if (call.judges) {
      norms_.UsedOn(stream);
      const cuda::Event read = context_.layer.MakeEvent(context_.device, false);
      context_.layer.Copy(stream, &last_read_, norms_.data(), 4);
      context_.layer.Record(read, stream);
      context_.host.WaitFor(read);
      context_.layer.Destroy(read);
    }
    if (call.rejected) kept_.clear();
    return !call.rejected;
  }

  Buffer Contribute(const SumCall& call, Stream stream) override {
    if (SumsGradients(call.kind)) {
      gradients_.at(call.stage).UsedOn(stream);
      return CopyOf(gradients_.at(call.stage), stream);
    }
    Buffer sum = Number(0, stream);
    for (auto& [stage, gradient] : gradients_) {
      gradient.UsedOn(stream);
      AddTo(sum, gradient, stream);
    }
    return sum;
  }

  void Combine(const SumCall& call, Stream stream,
               std::span<const Buffer* const> contributions) override {
    Buffer& target = SumsGradients(call.kind) ? gradients_.at(call.stage) : norms_;
    target.UsedOn(stream);
    if (SumsGradients(call.kind)) Set(target, 0, stream);
    for (const Buffer* one : contributions) AddTo(target, *one, stream);
  }

  Bytes TakePeakBytes() override { return meter_.TakePeakBytes(); }
  void Abandon() noexcept override { kept_.clear(); }

  // Parameters by stage, and the sum of all norms.
  Payload Finish() override {
    std::vector<float> result;
    for (auto& [stage, parameter] : parameters_) result.push_back(Read(parameter));
    result.push_back(Read(norms_));
    result.push_back(static_cast<float>(kept_.size()));
    return Payload::CopyOf(std::as_bytes(std::span(result)));
  }

 private:
  using Cell = std::pair<int, int>;

  static RankContext RankContextOf(const StreamContext& context, const std::atomic<bool>& stop) {
    return {.program = context.program, .rank = context.rank, .stopping = stop};
  }

  Buffer Number(int value, Stream stream) {
    Buffer number = context_.pool.Take(TensorUse::kWorkspace, 4, stream);
    Set(number, value, stream);
    return number;
  }
  void Set(Buffer& number, int value, Stream stream) {
    context_.layer.Launch(stream, cuda::Fill{.to = number.As(ElementType::kFloat32, 1, 1),
                                             .value = static_cast<float>(value)});
  }
  Buffer CopyOf(const Buffer& number, Stream stream) {
    Buffer copy = context_.pool.Take(TensorUse::kWorkspace, 4, stream);
    context_.layer.Copy(stream, copy.data(), number.data(), 4);
    return copy;
  }
  void AddTo(Buffer& to, const Buffer& number, Stream stream) {
    const cuda::View view = to.As(ElementType::kFloat32, 1, 1);
    context_.layer.Launch(stream, cuda::Add{view, number.As(ElementType::kFloat32, 1, 1), view});
  }
  float Read(const Buffer& number) {
    float value = 0;
    context_.layer.Copy(context_.compute, &value, number.data(), 4);
    context_.layer.Synchronize(context_.compute);
    return value;
  }

  Buffer RunOne(StreamOpCall& call) {
    const Cell cell{call.op.stage, call.op.micro_batch};
    const Stream s = call.stream;
    const bool is_first_part = call.part.index == 0;
    switch (call.op.pass) {
      case Pass::kF: {
        Buffer out =
            call.input.empty() ? Number(call.op.micro_batch + 1, s) : std::move(call.input);
        AddTo(out, parameters_.at(call.op.stage), s);
        kept_[cell] = CopyOf(out, s);
        return out;
      }
      case Pass::kB:
        return RunInputGrad(call, cell);
      case Pass::kW:
        if (call.part.index + 1 == call.part.count) RunWeightGrad(cell, s);
        return {};
      case Pass::kBW: {
        if (is_first_part) fused_[cell] = RunInputGrad(call, cell);
        if (call.part.index + 1 < call.part.count) return {};
        RunWeightGrad(cell, s);
        Buffer out = std::move(fused_.at(cell));
        fused_.erase(cell);
        return out;
      }
    }
    return {};
  }

  Buffer RunInputGrad(StreamOpCall& call, const Cell& cell) {
    Buffer gradient = call.input.empty() ? Number(1, call.stream) : std::move(call.input);
    AddTo(gradient, kept_.at(cell), call.stream);
    context_.layer.Copy(call.stream, kept_.at(cell).data(), gradient.data(), 4);
    return gradient;
  }

  void RunWeightGrad(const Cell& cell, Stream stream) {
    AddTo(gradients_.at(cell.first), kept_.at(cell), stream);
    kept_.erase(cell);
  }

  StreamContext context_;
  std::atomic<bool> stopping_;
  LedgerMeter meter_;
  std::map<int, Buffer> parameters_;
  std::map<int, Buffer> before_;
  std::map<int, Buffer> gradients_;
  std::map<Cell, Buffer> kept_;
  std::map<Cell, Buffer> fused_;
  Buffer norms_;
  float last_read_ = 0;
};

std::unique_ptr<StreamWork> Adding(const StreamContext& context) {
  return std::make_unique<AddingWork>(context);
}

using Results = std::vector<std::vector<float>>;

Results ResultsOf(const StreamReport& report) {
  Results results;
  for (const Payload& payload : report.results) {
    std::vector<float>& result = results.emplace_back(payload.size() / sizeof(float));
    std::memcpy(result.data(), payload.bytes().data(), payload.size());
  }
  return results;
}

// The same in plain loops.
Results Expected(const Program& program) {
  std::vector<double> parameters(static_cast<size_t>(program.num_stages()));
  std::iota(parameters.begin(), parameters.end(), 1);
  double norms = 0;
  for (int i = 0; i < program.num_iterations(); ++i) {
    std::vector<double> gradients(parameters.size(), 0);
    for (int m = 0; m < program.num_micro_batches(); ++m) {
      double x = m + 1;
      std::vector<double> out;
      for (const double parameter : parameters) out.push_back(x += parameter);
      double d = 1;
      for (size_t stage = parameters.size(); stage-- > 0;) gradients[stage] += d += out[stage];
    }
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      for (const int stage : program.stages_of(rank)) {
        norms += program.tail() == Tail::kNoTail ? 0 : gradients[stage];
      }
    }
    const bool is_rejected = i + 1 < program.num_iterations() && program.is_replayed(i + 1);
    for (size_t s = 0; s < parameters.size(); ++s) parameters[s] += is_rejected ? 0 : gradients[s];
  }
  Results results;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    std::vector<float>& result = results.emplace_back();
    for (const int stage : program.stages_of(rank)) {
      result.push_back(static_cast<float>(parameters[stage]));
    }
    result.push_back(static_cast<float>(norms));
    result.push_back(0);  // nothing is kept
  }
  return results;
}

struct Case {
  const char* schedule;
  int ranks;
  int micro_batches;
  LoweringOptions options{};
};

Costs CostsFor(const Schedule& schedule) {
  Costs costs = Costs::Uniform(schedule.num_stages(), schedule.num_micro_batches(), kUnit, {});
  GradientSums sums;
  sums.twins.assign(static_cast<size_t>(schedule.num_stages()), {.bytes = 4, .duration = 1});
  std::vector<StageCost> table(static_cast<size_t>(schedule.num_stages()), kUnit);
  Costs::Common common = costs.common();
  common.gradients = sums;
  return Costs(schedule.num_stages(), schedule.num_micro_batches(), std::move(table), common);
}

class Player {
 public:
  explicit Player(const Case& c)
      : schedule_(
            FindSchedule(c.schedule)
                .Make({.ranks = c.ranks, .micro_batches = c.micro_batches, .stages_per_rank = 2})),
        costs_(CostsFor(schedule_)),
        program_(Lower(schedule_, costs_, c.options)),
        plan_(program_, SimulateByQueue(program_)) {}

  StreamReport On(FakeLayer& layer, const StreamRunOptions& options) const {
    return RunOnStreams(plan_, layer, Adding, options);
  }
  const Program& program() const { return program_; }
  const Costs& costs() const { return costs_; }

 private:
  Schedule schedule_;
  Costs costs_;
  Program program_;
  StreamPlan plan_;
};

void ExpectRunsRight(const Case& c, const std::vector<int>& devices, uint64_t seed) {
  SCOPED_TRACE(fmt::format("{} on {} ranks, {}, {}, seed {}", c.schedule, c.ranks,
                           Name(c.options.posting), Name(c.options.tail), seed));
  const Player player(c);
  FakeLayer layer({.devices = 4, .seed = seed});
  const StreamReport report =
      player.On(layer, {.devices = devices, .host_clock = [&] { return layer.host_time(); }});
  ASSERT_FALSE(report.failure) << report.failure->message;
  EXPECT_EQ(ResultsOf(report), Expected(player.program()));
  EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
  ExpectLegal(player.program(), player.costs(), report.timeline);
  EXPECT_EQ(layer.live_streams(), 0);
  EXPECT_EQ(layer.live_events(), 0);
  EXPECT_EQ(layer.live_communicators(), 0);
  for (int device = 0; device < 4; ++device) EXPECT_EQ(layer.allocated(device), 0);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* schedule :
       {"1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v", "gpipe"}) {
    for (const Posting posting : {Posting::kIdeal, Posting::kNcclFifo, Posting::kBatched}) {
      for (const Tail tail :
           {Tail::kNoTail, Tail::kBarrier, Tail::kStrictValidation, Tail::kSpeculativeValidation}) {
        cases.push_back({schedule, 2, 4, {.posting = posting, .tail = tail, .iterations = 2}});
      }
    }
  }
  cases.push_back({"zb-h1", 4, 6, {.tail = Tail::kBarrier, .iterations = 3}});
  cases.push_back(
      {"zb-h2", 3, 6, {.tail = Tail::kSpeculativeValidation, .iterations = 3, .rejected = {0}}});
  cases.push_back({"1f1b", 1, 3, {.iterations = 2}});
  return cases;
}

TEST(StreamRun, ComesToTheNumbersOfPlainLoopsOnOneDevice) {
  for (const Case& c : Cases()) {
    ExpectRunsRight(c, std::vector<int>(static_cast<size_t>(c.ranks), 0), 1);
    if (HasFatalFailure()) return;
  }
}

TEST(StreamRun, ComesToThemOnADeviceForEachRank) {
  for (const Case& c : Cases()) {
    std::vector<int> devices(static_cast<size_t>(c.ranks));
    std::iota(devices.begin(), devices.end(), 0);
    ExpectRunsRight(c, devices, 2);
    if (HasFatalFailure()) return;
  }
}

TEST(StreamRun, ComesToThemInAnyOrderThatStreamsPermit) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    ExpectRunsRight({"zb-v", 3, 6, {.posting = Posting::kNcclFifo, .iterations = 2}}, {0, 1, 0},
                    seed);
    if (HasFatalFailure()) return;
  }
}

TEST(StreamRun, KeepsRanksToTheirPartitions) {
  const Player player({"zb-h1", 2, 4});
  FakeLayer layer({});
  const std::vector<cuda::Partition> partitions = layer.Split(0, 2);
  const StreamReport report = player.On(layer, {.devices = {0, 0}, .partitions = partitions});
  ASSERT_FALSE(report.failure) << report.failure->message;
  EXPECT_EQ(ResultsOf(report), Expected(player.program()));
  EXPECT_EQ(report.clock_error, 0) << "one device has one clock";
}

TEST(StreamRun, EndsWithAMessageWhicheverCallFails) {
  const Player player({"zb-h1", 2, 2, {.tail = Tail::kStrictValidation, .iterations = 2}});
  for (const char* function : {"Allocate", "MakeStream", "MakeEvent", "Record", "Wait", "Launch",
                               "Copy", "Send", "Receive", "EndGroup", "MakeCommunicator"}) {
    for (const int nth : {1, 2, 5, 9}) {
      SCOPED_TRACE(fmt::format("call {} of {}", nth, function));
      FakeLayer layer({.devices = 2});
      layer.FailCall(function, nth, GpuErrorKind::kOutOfMemory);
      const StreamReport report = player.On(layer, {.devices = {0, 1}, .limit = 300'000'000});
      if (!report.failure) continue;  // it was not called so often
      EXPECT_THAT(report.failure->message, HasSubstr("rank "));
      EXPECT_EQ(layer.live_streams(), 0);
      EXPECT_EQ(layer.live_communicators(), 0);
    }
  }
}

TEST(StreamRun, NamesTheRankAndOpOfAKernelThatBreaksTheDevice) {
  const Player player({"1f1b", 2, 2});
  for (const int nth : {1, 7, 15}) {
    FakeLayer layer({});
    layer.BreakLaunch(nth);
    const StreamReport report = player.On(layer, {.devices = {0, 0}, .limit = 300'000'000});
    ASSERT_TRUE(report.failure);
    EXPECT_EQ(report.failure->kind, FailureKind::kWork);
    EXPECT_THAT(report.failure->message, HasSubstr("rank "));
  }
}

TEST(StreamRun, EndsWhereAPeerIsLost) {
  const Player player({"1f1b", 2, 4});
  // The communicator is the first that is made: break it as soon as work is posted.
  class Breaking : public FakeLayer {
   public:
    using FakeLayer::FakeLayer;
    cuda::Communicator MakeCommunicator(int device, const cuda::CommunicatorId& id, int size,
                                        int rank) override {
      made_ = FakeLayer::MakeCommunicator(device, id, size, rank);
      return made_;
    }
    void Send(cuda::Communicator communicator, Stream stream, const void* data, Bytes bytes,
              int peer) override {
      FakeLayer::Send(communicator, stream, data, bytes, peer);
      if (++sent_ == 3) Break(made_, "the network is gone");
    }

   private:
    cuda::Communicator made_{};
    int sent_ = 0;
  };
  Breaking layer({.devices = 2});
  const StreamReport report = player.On(layer, {.devices = {0, 1}, .limit = 300'000'000});
  ASSERT_TRUE(report.failure);
  EXPECT_THAT(report.failure->message, HasSubstr("the network is gone"));
}

TEST(StreamRun, EndsWhereAStreamStandsStillAndNamesWhatDoesNotEnd) {
  const Player player({"zb-h1", 2, 4});
  class Stalling : public FakeLayer {
   public:
    using FakeLayer::FakeLayer;
    void Launch(Stream stream, const cuda::Call& call) override {
      FakeLayer::Launch(stream, call);
      if (++launches_ == 20) Stall(stream);
    }

   private:
    int launches_ = 0;
  };
  Stalling layer(cuda::FakeSettings{});
  const StreamReport report = player.On(layer, {.devices = {0, 0}, .limit = 200'000'000});
  ASSERT_TRUE(report.failure);
  EXPECT_EQ(report.failure->kind, FailureKind::kStalled);
  EXPECT_THAT(report.failure->message, HasSubstr("nothing has ended for"));
  EXPECT_GE(report.failure->rank, 0);
  EXPECT_NE(report.failure->op, "");
}

TEST(StreamRun, RefusesDevicesThatThereAreNot) {
  const Player player({"1f1b", 2, 2});
  FakeLayer layer({});
  EXPECT_THROW(player.On(layer, {.devices = {0}}), InputError);
  EXPECT_THROW(player.On(layer, {.devices = {0, 1}}), InputError);
}

}  // namespace
}  // namespace spiritlevel
