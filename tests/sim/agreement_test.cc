// Four independent answers to "when does each op start": the order-driven engine, the
// queue-driven engine, the flat evaluator, and the longest path through a Boost.Graph made
// straight from the schedule. Costs are small integers, so that ties abound.
#include <gtest/gtest.h>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>
#include <map>
#include <utility>

#include "sim/analysis/check_schedule.h"
#include "sim/analysis/check_timeline.h"
#include "sim/analysis/deadlock.h"
#include "sim/event.h"
#include "tests/sim/random_case.h"
#include "tests/sim/run.h"

namespace spiritlevel {
namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property,
                                    boost::property<boost::edge_weight_t, TimeNs>>;

// Starts of the first iteration as longest paths. A vertex is a start: of an op (or pair), or of a
// message on its link.
class LongestPath {
 public:
  LongestPath(const Schedule& schedule, const Costs& costs) : schedule_(schedule), costs_(costs) {
    source_ = boost::add_vertex(graph_);
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) AddLane(rank);
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) AddMessages(rank);
    Solve();
  }

  TimeNs StartOf(const Op& op) const { return start_[vertex_.at(Key(op))]; }

  // End of the last op, plus the tail.
  TimeNs Makespan(Tail tail) const {
    TimeNs last = 0;
    for (const auto& [vertex, duration] : durations_) {
      last = std::max(last, start_[vertex] + duration);
    }
    return last + costs_.common().optimizer +
           (tail == Tail::kBarrier ? costs_.common().barrier : 0);
  }

 private:
  using Vertex = Graph::vertex_descriptor;

  static std::tuple<int, int, int> Key(const Op& op) {
    return {op.stage, op.micro_batch, static_cast<int>(op.pass)};
  }

  void AddEdge(Vertex from, Vertex to, TimeNs weight) { boost::add_edge(from, to, weight, graph_); }

  void AddLane(int rank) {
    Vertex before = source_;
    TimeNs before_takes = 0;
    const auto ops = schedule_.ops(rank);
    for (size_t i = 0; i < ops.size(); ++i) {
      const Vertex v = boost::add_vertex(graph_);
      AddEdge(before, v, before_takes + costs_.common().launch);
      vertex_[Key(ops[i])] = v;
      before_takes = costs_.duration(ops[i]);
      if (ops[i].overlaps_next) {
        before_takes = costs_.overlapped_duration(ops[i], ops[i + 1]);
        vertex_[Key(ops[++i])] = v;
      }
      durations_[v] = before_takes;
      before = v;
    }
  }

  void AddMessages(int rank) {
    for (const Op& op : schedule_.ops(rank)) {
      if (op.pass == Pass::kW) continue;
      const int reader_stage = op.pass == Pass::kF ? op.stage + 1 : op.stage - 1;
      if (reader_stage < 0 || reader_stage >= schedule_.num_stages()) continue;
      const int to = schedule_.rank_of(reader_stage, op.micro_batch);
      if (to == rank) continue;
      const HopCost& hop = costs_.common().hop;
      const Vertex made = vertex_.at(Key(op));
      const Vertex message = boost::add_vertex(graph_);
      AddEdge(made, message, durations_.at(made));
      const auto [last, first] = last_on_link_.try_emplace({rank, to}, message);
      if (!first) AddEdge(std::exchange(last->second, message), message, hop.busy);
      AddEdge(message, Reader(op, reader_stage), hop.busy + hop.latency + costs_.common().launch);
    }
  }

  Vertex Reader(const Op& made, int stage) const {
    Op reader{.micro_batch = made.micro_batch, .stage = static_cast<uint16_t>(stage)};
    for (const Pass pass : {Pass::kF, Pass::kB, Pass::kBW}) {
      if ((pass == Pass::kF) != (made.pass == Pass::kF)) continue;
      reader.pass = pass;
      const auto found = vertex_.find(Key(reader));
      if (found != vertex_.end()) return found->second;
    }
    ADD_FAILURE() << "nobody reads " << ToString(made);
    return source_;
  }

  void Solve() {
    std::vector<Vertex> order;
    boost::topological_sort(graph_, std::back_inserter(order));
    start_.assign(boost::num_vertices(graph_), 0);
    for (auto v = order.rbegin(); v != order.rend(); ++v) {
      for (const auto e : boost::make_iterator_range(boost::out_edges(*v, graph_))) {
        TimeNs& start = start_[boost::target(e, graph_)];
        start = std::max(start, start_[*v] + boost::get(boost::edge_weight, graph_, e));
      }
    }
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Graph graph_;
  Vertex source_ = 0;
  std::map<std::tuple<int, int, int>, Vertex> vertex_;
  std::map<Vertex, TimeNs> durations_;
  std::map<std::pair<int, int>, Vertex> last_on_link_;
  std::vector<TimeNs> start_;
};

constexpr unsigned kCases = 3000;

TEST(Agreement, EnginesEvaluatorAndLongestPathOnRandomSchedulesAndCosts) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    const Tail tail = random.Below(2) == 0 ? Tail::kNoTail : Tail::kBarrier;
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << Describe(schedule, costs));
    const Program program = Lower(schedule, costs, {.tail = tail, .iterations = 4});
    const Timeline in_order = SimulateInOrder(program);
    ASSERT_EQ(in_order, SimulateByQueue(program));

    const Summary summary = Summarize(program, costs, in_order);
    Evaluator evaluator(costs);
    const Evaluator::Result& flat = evaluator.Evaluate(schedule, tail, 4);
    ASSERT_EQ(flat.makespan, summary.makespan);
    ASSERT_EQ(flat.max_rank_span, summary.max_rank_span);
    ASSERT_EQ(flat.period, summary.period);
    ASSERT_EQ(flat.peak_bytes, summary.peak_bytes);

    const LongestPath path(schedule, costs);
    ASSERT_EQ(path.Makespan(tail), summary.makespan);
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      NodeId node = program.rank_begin(rank);
      const auto ops = schedule.ops(rank);
      for (size_t i = 0; i < ops.size(); i += ops[i].overlaps_next ? 2 : 1, ++node) {
        ASSERT_EQ(in_order.nodes[static_cast<size_t>(node)].start, path.StartOf(ops[i]))
            << ToString(ops[i]);
      }
    }
  }
}

TEST(Agreement, TheCheckerPassesWhatTheGeneratorsAndTheEngineMake) {
  for (unsigned seed = 0; seed < kCases / 3; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    const Program program = Lower(schedule, costs, {.tail = Tail::kBarrier, .iterations = 4});
    const Timeline timeline = SimulateInOrder(program);
    const Summary summary = Summarize(program, costs, timeline);
    SCOPED_TRACE(testing::Message() << "seed " << seed << " " << Describe(schedule, costs));

    ASSERT_TRUE(CheckSchedule(schedule.ToOrders()).legal());
    const std::vector<Event> events = CollectEvents(program, timeline, 2);
    const Bytes peak = summary.peak_bytes[static_cast<size_t>(summary.fullest_rank())];
    for (const Finding& f : CheckTimeline(events, peak)) ADD_FAILURE() << f.rule << ": " << f.what;
    for (const Finding& f : CheckAccounts(events, summary.stalls)) {
      ADD_FAILURE() << f.rule << ": " << f.what;
    }
    if (peak == 0) continue;
    const std::vector<Finding> findings = CheckTimeline(events, peak - 1);
    ASSERT_FALSE(findings.empty()) << "one byte less than the peak must not fit";
    for (const Finding& f : findings) EXPECT_EQ(f.rule, "memory_limit");
  }
}

// Under the other postings, wherever nobody waits for ever: the engines agree, the checker passes
// what they make, the accounts close, and nothing is faster than under ideal posting.
TEST(Agreement, EnginesAndCheckerUnderEveryPosting) {
  int played = 0;
  for (unsigned seed = 0; seed < kCases / 3; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    const TimeNs ideal = SumUp(schedule, costs).makespan;
    for (const LoweringOptions& options :
         {LoweringOptions{.posting = Posting::kNcclFifo},
          LoweringOptions{.posting = Posting::kNcclFifo, .receives = Receives::kDeferred},
          LoweringOptions{.posting = Posting::kNcclFifo,
          .receives = Receives::kNaive,
          .channels = Channels::kDirected},
          LoweringOptions{.posting = Posting::kBatched}}) {
      LoweringOptions four = options;
      four.iterations = kPeriodIterations;
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << " " << Name(options.posting) << " "
                   << Name(options.receives) << " " << Describe(schedule, costs));
      const Program program = Lower(schedule, costs, four);
      if (FindDeadlock(program)) {
        const bool may =
            options.posting == Posting::kBatched || options.receives == Receives::kNaive;
        ASSERT_TRUE(may) << *FindDeadlock(program);
        continue;
      }
      ++played;
      const Timeline timeline = SimulateInOrder(program);
      ASSERT_EQ(timeline, SimulateByQueue(program));
      const Summary summary = Summarize(program, costs, timeline);
      ASSERT_GE(summary.makespan, ideal);
      const std::vector<Event> events = CollectEvents(program, timeline, 2);
      for (const Finding& f : CheckTimeline(events, {})) ADD_FAILURE() << f.rule << ": " << f.what;
      for (const Finding& f : CheckAccounts(events, summary.stalls)) {
        ADD_FAILURE() << f.rule << ": " << f.what;
      }
    }
  }
  EXPECT_GT(played, static_cast<int>(kCases / 3));
}

// Every rank's accounts close, whatever the order and the costs.
TEST(Agreement, BusyAndStallsMakeUpTheMakespanOnEveryRank) {
  for (unsigned seed = 0; seed < kCases; ++seed) {
    RandomCase random(seed);
    const Schedule schedule = random.MakeSchedule();
    const Costs costs = random.MakeCosts(schedule);
    const Tail tail = random.Below(2) == 0 ? Tail::kNoTail : Tail::kBarrier;
    const StallReport report = SumUp(schedule, costs, tail).stalls;
    for (size_t rank = 0; rank < report.busy.size(); ++rank) {
      TimeNs sum = report.busy[rank];
      for (const TimeNs stall : report.stalls[rank]) {
        ASSERT_GE(stall, 0) << "seed " << seed;
        sum += stall;
      }
      ASSERT_EQ(sum, report.makespan)
          << "seed " << seed << " rank " << rank << " " << Describe(schedule, costs);
    }
  }
}

// Times beyond what 64 bits hold beside a slot number go through the wide queue.
TEST(Agreement, TheQueueHoldsVeryLateTimes) {
  const Schedule schedule = Make("zb-h1", 6, 40);
  const Costs costs =
      UniformFor(schedule, SumOfParts(kMaxPassTime, kMaxPassTime / 3, kMaxPassTime / 7));
  const Program program = Lower(schedule, costs, {.iterations = 4});
  EXPECT_EQ(SimulateInOrder(program), SimulateByQueue(program));
}

}  // namespace
}  // namespace spiritlevel
