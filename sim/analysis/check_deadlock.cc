#include "sim/analysis/check_deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/topological_sort.hpp>
#include <boost/iterator/function_output_iterator.hpp>
#include <utility>

#include "base/check.h"

namespace spiritlevel::check {
namespace {

using Vertex = uint32_t;
using Graph =
    boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                       boost::no_property, Vertex, uint32_t>;

// The things a rank runs one after the other: ops, a pair counting as one.
struct Steps {
  std::vector<Vertex> of_op;
  std::vector<OpIndex> first_op;   // by step, and one past the last
  std::vector<Vertex> rank_begin;  // one more than ranks
};

Steps NumberSteps(const FlatOrders& orders) {
  Steps steps;
  steps.of_op.resize(orders.ops.size());
  steps.first_op.reserve(orders.ops.size() + 1);
  for (int rank = 0; rank < orders.ranks(); ++rank) {
    steps.rank_begin.push_back(static_cast<Vertex>(steps.first_op.size()));
    for (OpIndex op = orders.rank_begin[rank]; op < orders.rank_begin[rank + 1]; ++op) {
      const auto step = static_cast<Vertex>(steps.first_op.size());
      steps.first_op.push_back(op);
      steps.of_op[op] = step;
      if (orders.joined[op]) steps.of_op[++op] = step;
    }
  }
  steps.rank_begin.push_back(static_cast<Vertex>(steps.first_op.size()));
  steps.first_op.push_back(static_cast<OpIndex>(orders.ops.size()));
  return steps;
}

// An edge from each step to what it waits for: the step before it on its rank, and its inputs. An
// input that stands earlier on the same rank needs no edge of its own.
Graph WaitsForGraph(const FlatOrders& orders, const Steps& steps) {
  std::vector<std::pair<Vertex, Vertex>> edges;
  edges.reserve(orders.ops.size() * 3);
  for (int rank = 0; rank < orders.ranks(); ++rank) {
    for (Vertex step = steps.rank_begin[rank]; step < steps.rank_begin[rank + 1]; ++step) {
      if (step > steps.rank_begin[rank]) edges.emplace_back(step, step - 1);
      for (OpIndex op = steps.first_op[step]; op < steps.first_op[step + 1]; ++op) {
        for (const OpIndex input : orders.needs(orders.ops[op])) {
          if (input == kNowhere) continue;
          const Vertex source = steps.of_op[input];
          if (source < steps.rank_begin[rank] || source > step) edges.emplace_back(step, source);
        }
      }
    }
  }
  return Graph(boost::edges_are_sorted, edges.begin(), edges.end(),
               static_cast<Vertex>(steps.first_op.size() - 1));
}

bool HasCycle(const Graph& graph) {
  try {
    boost::topological_sort(graph, boost::make_function_output_iterator([](Vertex) {}));
  } catch (const boost::not_a_dag&) {
    return true;
  }
  return false;
}

// Runs every rank as far as it gets, to show where each stops.
class StuckRanks {
 public:
  StuckRanks(const FlatOrders& orders, const Steps& steps)
      : orders_(orders),
        steps_(steps),
        done_(steps.first_op.size() - 1),
        first_waiter_(done_.size(), kNobody),
        next_waiter_(static_cast<size_t>(orders.ranks()), kNobody),
        at_(steps.rank_begin.begin(), steps.rank_begin.end() - 1) {
    std::vector<int> runnable;
    for (int rank = orders.ranks() - 1; rank >= 0; --rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const int rank = runnable.back();
      runnable.pop_back();
      Run(rank, runnable);
    }
  }

  // Ranks each of which waits for another of them, ascending; empty when every rank gets through.
  std::vector<int> Cycle() const {
    int rank = 0;
    while (rank < orders_.ranks() && !stuck(rank)) ++rank;
    if (rank == orders_.ranks()) return {};
    // Whoever is waited for is stuck too, so this walk ends in a cycle.
    std::vector<uint8_t> seen(at_.size());
    for (; !seen[rank]; rank = WaitsForRank(rank)) seen[rank] = 1;
    std::vector<int> cycle = {rank};
    for (int r = WaitsForRank(rank); r != rank; r = WaitsForRank(r)) cycle.push_back(r);
    std::sort(cycle.begin(), cycle.end());
    return cycle;
  }

  // "0F0 | 0BW0 0F1 0BW1", long rows shortened around the bar.
  std::string Row(int rank) const {
    constexpr Vertex kBefore = 4;
    constexpr Vertex kAfter = 6;
    const Vertex begin = steps_.rank_begin[rank];
    const Vertex end = steps_.rank_begin[rank + 1];
    const Vertex bar = at_[rank];
    std::string row;
    if (bar - begin > kBefore) row += "... ";
    for (Vertex s = std::max(begin, bar - std::min(bar - begin, kBefore)); s < bar; ++s) {
      row += Text(s) + ' ';
    }
    row += '|';
    for (Vertex s = bar; s < std::min(end, bar + kAfter); ++s) row += ' ' + Text(s);
    if (end - bar > kAfter) row += " ...";
    return row;
  }

  // "0BW0 waits for 1BW0"
  std::string Reason(int rank) const {
    const auto [waiting, input] = Missing(at_[rank]);
    return fmt::format("{} waits for {}", ToString(orders_.ops[waiting]),
                       ToString(orders_.ops[input]));
  }

 private:
  static constexpr int kNobody = -1;

  struct Wait {
    OpIndex waiting = kNowhere;
    OpIndex input = kNowhere;
  };

  void Run(int rank, std::vector<int>& runnable) {
    for (Vertex& at = at_[rank]; at < steps_.rank_begin[rank + 1]; ++at) {
      const Wait wait = Missing(at);
      if (wait.input != kNowhere) {
        int& first = first_waiter_[steps_.of_op[wait.input]];
        next_waiter_[rank] = std::exchange(first, rank);
        return;
      }
      done_[at] = 1;
      for (int r = first_waiter_[at]; r != kNobody; r = next_waiter_[r]) runnable.push_back(r);
    }
  }

  // The first input of the step that has not been made.
  Wait Missing(Vertex step) const {
    for (OpIndex op = steps_.first_op[step]; op < steps_.first_op[step + 1]; ++op) {
      for (const OpIndex input : orders_.needs(orders_.ops[op])) {
        if (input != kNowhere && !done_[steps_.of_op[input]]) return {op, input};
      }
    }
    return {};
  }

  bool stuck(int rank) const { return at_[rank] < steps_.rank_begin[rank + 1]; }
  int WaitsForRank(int rank) const { return orders_.rank_of[Missing(at_[rank]).input]; }

  std::string Text(Vertex step) const {
    const OpIndex op = steps_.first_op[step];
    if (!orders_.joined[op]) return ToString(orders_.ops[op]);
    return fmt::format("({};{})", ToString(orders_.ops[op]), ToString(orders_.ops[op + 1]));
  }

  const FlatOrders& orders_;
  const Steps& steps_;
  std::vector<uint8_t> done_;      // by step
  std::vector<int> first_waiter_;  // by step: a rank that waits for it, ...
  std::vector<int> next_waiter_;   // ... and by rank: another that waits for the same step
  std::vector<Vertex> at_;         // by rank: the step it stands before
};

std::string Words(const StuckRanks& stuck, const std::vector<int>& cycle) {
  constexpr size_t kMaxLines = 64;
  const size_t lines = std::min(cycle.size(), kMaxLines);
  std::vector<std::string> rows;
  size_t width = 0;
  for (size_t i = 0; i < lines; ++i) {
    rows.push_back(fmt::format("rank {}: {}", cycle[i], stuck.Row(cycle[i])));
    width = std::max(width, rows.back().size());
  }
  std::string words = "schedule deadlocks:";
  for (size_t i = 0; i < lines; ++i) {
    words += fmt::format("\n  {:<{}}   <-- {}", rows[i], width, stuck.Reason(cycle[i]));
  }
  if (lines < cycle.size()) words += fmt::format("\n  and {} more ranks", cycle.size() - lines);
  return words;
}

}  // namespace

std::string DescribeDeadlock(const FlatOrders& orders) {
  const Steps steps = NumberSteps(orders);
  if (!HasCycle(WaitsForGraph(orders, steps))) return "";
  const StuckRanks stuck(orders, steps);
  const std::vector<int> cycle = stuck.Cycle();
  SPIRITLEVEL_CHECK(!cycle.empty(), "where the graph has a cycle some rank gets stuck");
  return Words(stuck, cycle);
}

}  // namespace spiritlevel::check
