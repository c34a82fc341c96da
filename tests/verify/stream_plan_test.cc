// The plan for streams and events is held against the Program it was made of: by running it in any
// order that streams and events permit, and by playing it with the Program's durations.
#include "verify/stream_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/deadlock.h"
#include "sim/engine.h"
#include "tests/sim/random_case.h"

namespace spiritlevel {
namespace {

using StepKind = StreamPlan::StepKind;

// Queues of a device that runs what a host issues, in a random order. What has been recorded when
// a wait is issued is what it waits for.
class Streams {
 public:
  using Action = std::function<void()>;

  Streams(int count, unsigned seed) : queues_(static_cast<size_t>(count)), random_(seed) {}

  void Run(int stream, Action action) { queues_[stream].push_back({.action = std::move(action)}); }
  void Record(int stream, const std::string& event) {
    recorded_[event] = false;
    queues_[stream].push_back({.records = event});
  }
  // Returns false, and does not wait, if the event was never recorded.
  bool Wait(int stream, const std::string& event) {
    if (recorded_.count(event) == 0) return false;
    queues_[stream].push_back({.waits_for = event});
    return true;
  }

  // False if it comes to a stand with something left.
  bool RunAll() {
    std::vector<size_t> next(queues_.size(), 0);
    while (true) {
      std::vector<size_t> able;
      bool is_done = true;
      for (size_t s = 0; s < queues_.size(); ++s) {
        if (next[s] == queues_[s].size()) continue;
        is_done = false;
        const Item& item = queues_[s][next[s]];
        if (item.waits_for.empty() || recorded_[item.waits_for]) able.push_back(s);
      }
      if (is_done || able.empty()) return is_done;
      const size_t s = able[std::uniform_int_distribution<size_t>(0, able.size() - 1)(random_)];
      const Item& item = queues_[s][next[s]++];
      if (item.action) item.action();
      if (!item.records.empty()) recorded_[item.records] = true;
    }
  }

 private:
  struct Item {
    Action action{};
    std::string records{};
    std::string waits_for{};
  };
  std::vector<std::vector<Item>> queues_;
  std::map<std::string, bool> recorded_;  // whether the device has come to it
  std::mt19937 random_;
};

// Issues a plan as a transport that copies does, and notes what runs too early.
class Rehearsal {
 public:
  Rehearsal(const StreamPlan& plan, unsigned seed)
      : plan_(plan),
        program_(plan.program()),
        streams_(plan.num_streams(), seed),
        ended_(static_cast<size_t>(program_.num_nodes()), 0),
        transferred_(program_.messages().size(), 0),
        batch_of_(ended_.size(), kNone),
        edges_to_(ended_.size()) {
    for (size_t b = 0; b < program_.batches().size(); ++b) {
      for (const NodeId half : program_.batches()[b].halves) {
        batch_of_[half] = program_.batch_node(static_cast<int32_t>(b));
      }
    }
    for (const Edge& edge : program_.edges()) edges_to_[edge.to].push_back(edge.from);
  }

  // Waits of the plan are dropped from the `first_dropped`-th on: a plan that is wrong.
  void Run(int first_dropped = INT32_MAX) {
    first_dropped_ = first_dropped;
    for (int i = 0; i < plan_.num_steps(); ++i) Issue(plan_.step(i));
    Require(streams_.RunAll(), "streams wait for each other");
    for (NodeId id = 0; id < program_.num_nodes(); ++id) {
      const int times = batch_of_[id] == kNone ? 1 : 0;
      Require(ended_[id] == times, fmt::format("node {} ended {} times", id, ended_[id]));
    }
    for (const int times : transferred_) Require(times == 1, "each message is sent once");
  }

  const std::vector<std::string>& wrong() const { return wrong_; }
  int waits() const { return waits_; }

 private:
  static std::string End(NodeId node) { return fmt::format("end {}", node); }
  static std::string Posted(NodeId node) { return fmt::format("posted {}", node); }

  void Require(bool holds, const std::string& what) {
    if (!holds) wrong_.push_back(what);
  }
  void Wait(int stream, const std::string& event) {
    Require(streams_.Wait(stream, event), event + " is waited for before it is recorded");
  }

  void Issue(const StreamPlan::Step& step) {
    for (const StreamPlan::Wait& wait : step.waits) {
      if (waits_++ < first_dropped_) Wait(wait.stream, End(wait.for_end_of));
    }
    switch (step.kind) {
      case StepKind::kCompute:
        streams_.Run(step.stream, [=, this] { RunNode(step.node); });
        streams_.Record(step.stream, End(step.node));
        break;
      case StepKind::kPost:
        streams_.Record(step.stream, Posted(step.node));
        break;
      case StepKind::kTransfer:
        Transfer(step);
        break;
      case StepKind::kDone:
        streams_.Run(step.stream, [=, this] { ++ended_[step.node]; });
        streams_.Record(step.stream, End(step.node));
        break;
      case StepKind::kCollective:
        Collect(step);
        break;
    }
  }

  void Transfer(const StreamPlan::Step& step) {
    const MessageId m = step.messages.front();
    const NodeId receive = program_.receive_node(m);
    if (program_.rendezvous()) {
      Wait(step.stream, Posted(batch_of_[receive] == kNone ? receive : batch_of_[receive]));
    }
    streams_.Run(step.stream, [=, this] {
      Require(ended_[program_.messages()[m].from] == 1, fmt::format("{} is sent unmade", m));
      ++transferred_[m];
    });
    streams_.Record(step.stream, fmt::format("message {}", m));
    Wait(plan_.stream_of(receive), fmt::format("message {}", m));
  }

  void Collect(const StreamPlan::Step& step) {
    const auto joined = [](NodeId member) { return fmt::format("joined {}", member); };
    for (const NodeId member : step.members) {
      streams_.Record(plan_.stream_of(member), joined(member));
    }
    for (const NodeId member : step.members) {
      const int stream = plan_.stream_of(member);
      for (const NodeId other : step.members) Wait(stream, joined(other));
      streams_.Run(stream, [=, this] { RunNode(member); });
      streams_.Record(stream, End(member));
    }
  }

  // All that the Program says it waits for.
  void RunNode(NodeId id) {
    ++ended_[id];
    for (const NodeId from : edges_to_[id]) {
      Require(ended_[from] == 1, fmt::format("{} runs before {}", id, from));
    }
    if (id >= program_.num_lane_nodes()) return;
    const int rank = program_.rank_of(id);
    if (id > program_.rank_begin(rank)) {
      Require(ended_[id - 1] == 1, fmt::format("{} is out of order", id));
    }
    for (const MessageId m : program_.nodes()[id].inputs) {
      if (m != kNone) Require(transferred_[m] == 1, fmt::format("{} lacks an input", id));
    }
  }

  const StreamPlan& plan_;
  const Program& program_;
  Streams streams_;
  std::vector<int> ended_;
  std::vector<int> transferred_;
  std::vector<NodeId> batch_of_;
  std::vector<std::vector<NodeId>> edges_to_;
  std::vector<std::string> wrong_;
  int waits_ = 0;
  int first_dropped_ = INT32_MAX;
};

struct Made {
  Schedule schedule;
  Costs costs;
  LoweringOptions options;
};

// When compute nodes end if each step is played as it is issued.
std::vector<TimeNs> EndsOf(const StreamPlan& plan) {
  const Program& program = plan.program();
  std::vector<TimeNs> end(static_cast<size_t>(program.num_nodes()), 0);
  std::vector<TimeNs> free(static_cast<size_t>(plan.num_streams()), 0);
  const auto duration = [&](NodeId id, bool launches) {
    const int32_t cost = program.nodes()[id].cost;
    if (cost == kNone) return TimeNs{0};
    return program.costs()[cost].duration + (launches ? program.costs()[cost].launch : 0);
  };
  for (int i = 0; i < plan.num_steps(); ++i) {
    const StreamPlan::Step step = plan.step(i);
    for (const StreamPlan::Wait& wait : step.waits) {
      free[wait.stream] = std::max(free[wait.stream], end[wait.for_end_of]);
    }
    if (step.kind == StepKind::kCompute) {
      end[step.node] = free[step.stream] += duration(step.node, true);
    } else if (step.kind == StepKind::kTransfer) {
      const MessageId m = step.messages.front();
      const int to = plan.stream_of(program.receive_node(m));
      const HopCost& hop = program.links()[program.messages()[m].link].hop;
      const TimeNs start = std::max(free[step.stream], free[to]);
      free[step.stream] = free[to] = start + hop.latency + hop.busy;
    } else if (step.kind == StepKind::kDone) {
      end[step.node] = free[step.stream];
    } else if (step.kind == StepKind::kCollective) {
      TimeNs start = 0;
      for (const NodeId member : step.members) {
        start = std::max(start, free[plan.stream_of(member)]);
      }
      const int32_t collective =
          program.is_reduction(step.node)
              ? program.reductions()[step.node - program.reduction_node(0)].collective
              : program.nodes()[step.node].extra;
      for (const NodeId member : step.members) {
        end[member] = free[plan.stream_of(member)] =
            start + program.collectives()[collective].duration;
      }
    }
  }
  end.resize(static_cast<size_t>(program.num_lane_nodes()));
  return end;
}

std::vector<TimeNs> EndsIn(const Program& program, const Timeline& timeline) {
  std::vector<TimeNs> end;
  for (NodeId id = 0; id < program.num_lane_nodes(); ++id) end.push_back(timeline.nodes[id].end);
  return end;
}

Made Random(unsigned seed) {
  RandomCase random(seed);
  const Schedule schedule = random.MakeSchedule();
  Costs costs = random.MakeCosts(schedule);
  LoweringOptions options{.iterations = 1 + random.Below(3)};
  options.posting = static_cast<Posting>(random.Below(3));
  options.tail = static_cast<Tail>(random.Below(4));
  options.channels = static_cast<Channels>(random.Below(2));
  options.receives = random.Below(2) == 0 ? Receives::kEarly : Receives::kNaive;
  if (random.Below(3) == 0) costs = random.WithSums(costs, false);
  return Made{schedule, costs, options};
}

// Calls `see` with every Program of the first `seeds` that does not deadlock.
template <typename See>
void ForEachProgram(unsigned seeds, const See& see) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Made made = Random(seed);
    const Program program = Lower(made.schedule, made.costs, made.options);
    if (!FindDeadlock(program)) see(program, seed);
  }
}

TEST(StreamPlan, RunsEveryProgramInItsOrderHoweverStreamsInterleave) {
  int planned = 0;
  ForEachProgram(600, [&](const Program& program, unsigned seed) {
    const StreamPlan plan(program, SimulateByQueue(program));
    Rehearsal rehearsal(plan, seed);
    rehearsal.Run();
    EXPECT_THAT(rehearsal.wrong(), testing::IsEmpty());
    ++planned;
  });
  EXPECT_GT(planned, 400);
}

TEST(StreamPlan, IsFoundOutWithoutItsWaits) {
  int found = 0;
  int with_waits = 0;
  ForEachProgram(100, [&](const Program& program, unsigned seed) {
    const StreamPlan plan(program, SimulateByQueue(program));
    Rehearsal rehearsal(plan, seed);
    rehearsal.Run(/*first_dropped=*/0);
    with_waits += rehearsal.waits() > 8;
    found += rehearsal.waits() > 8 && !rehearsal.wrong().empty();
  });
  EXPECT_GT(with_waits, 50);
  EXPECT_GT(found, with_waits * 9 / 10);
}

// Where a stream has waited for a later end of another, the earlier one needs no wait.
TEST(StreamPlan, WaitsForEachStreamOnlyForwards) {
  ForEachProgram(200, [&](const Program& program, unsigned) {
    const StreamPlan plan(program, SimulateByQueue(program));
    std::map<std::pair<int, int>, int> latest;
    std::vector<int> step_of(static_cast<size_t>(program.num_nodes()), -1);
    for (int i = 0; i < plan.num_steps(); ++i) {
      const StreamPlan::Step step = plan.step(i);
      for (const StreamPlan::Wait& wait : step.waits) {
        const int source = plan.stream_of(wait.for_end_of);
        EXPECT_NE(source, wait.stream);
        const auto [at, is_new] = latest.try_emplace({wait.stream, source}, -1);
        EXPECT_LT(at->second, step_of[wait.for_end_of]) << "waits twice for one end";
        at->second = step_of[wait.for_end_of];
      }
      if (step.kind == StepKind::kPost || step.kind == StepKind::kTransfer) continue;
      step_of[step.node] = i;
      for (const NodeId member : step.members) step_of[member] = i;
    }
  });
}

// A second opinion on the engines: streams that take the Program's durations end when they say,
// where no link has more than one message at a time but by its lane.
TEST(StreamPlan, PlayedWithTheProgramsDurationsEndsWhenTheEngineSays) {
  int played = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Made made = Random(seed);
    made.options.posting = Posting::kNcclFifo;
    const Program program = Lower(made.schedule, made.costs, made.options);
    if (FindDeadlock(program)) continue;
    const Timeline expected = SimulateByQueue(program);
    const StreamPlan plan(program, expected);
    EXPECT_EQ(EndsOf(plan), EndsIn(program, expected));
    ++played;
  }
  EXPECT_GT(played, 150);
}

}  // namespace
}  // namespace spiritlevel
