// A SearchProblem as an integer program: when each op starts, which of two ops of a rank comes
// first, which backwards are fused. docs/bounds.md, "The integer program".
#pragma once

#include <cstdint>
#include <vector>

#include "sim/op.h"
#include "sim/search/bound_paths.h"
#include "sim/search/exact_program.h"
#include "sim/search/problem.h"

namespace spiritlevel {

class ExactModel {
 public:
  // `start` fits and is worth `value`; `bound` is LowerBound(problem).
  ExactModel(const SearchProblem& problem, const Orders& start, TimeNs value, TimeNs bound);

  int num_choices() const { return choices_; }
  const IntegerProgram& program() const { return program_; }
  const std::vector<double>& start() const { return start_; }

  // The order a solution says. It may not be one, where rounding went wrong.
  Orders OrdersOf(const std::vector<double>& solution) const;
  // What a bound on the program says of the objective.
  TimeNs BoundOf(double program_bound) const;

 private:
  enum Kind : uint8_t { kF, kB, kW };  // kB is BW where `fused`; kW then takes no time
  struct Node {
    int stage = 0;
    int micro_batch = 0;
    Kind kind = kF;
    int64_t duration = 0;  // in units; unfused
    int64_t fused = 0;     // of kB and kW
    int64_t least = 0;     // what any order spends on it: docs/bounds.md, "One kind of backward"
    int64_t earliest = 0;
    int start = -1;  // column
  };
  // constant + factor * column
  struct Linear {
    double constant = 0;
    int column = -1;
    double factor = 0;
  };
  class RowBuilder;

  int Id(int stage, int micro_batch, Kind kind) const {
    return (stage * micro_batches_ + micro_batch) * 3 + kind;
  }
  int rank_of(int id) const { return problem_.placement.rank_of(nodes_[size_t(id)].stage); }
  bool Implied(int before, int after) const {
    return implied_[static_cast<size_t>(before) * nodes_.size() + static_cast<size_t>(after)];
  }
  const StageCost& CostOf(const Node& node) const {
    return problem_.costs->of(node.stage, node.micro_batch);
  }
  int FusedColumn(const Node& node) const {
    return fused_[static_cast<size_t>(node.stage * micro_batches_ + node.micro_batch)];
  }
  Linear Before(int before, int after) const;
  Linear DurationOf(const Node& node) const;

  void ChooseUnit();
  void MakeNodes();
  void MakeClasses();
  void Imply();
  void AddColumns(TimeNs value, TimeNs bound);
  void AddDependencies();
  void AddOrderRows();
  void AddFusionRows(int rank);
  void AddMemoryRows(int rank);
  void AddObjectiveRows(int rank);
  void SetStart(const Orders& start);
  std::vector<std::vector<int>> NodesOf(const Orders& orders);
  void PlayStart(const std::vector<std::vector<int>>& ranks);
  double ValueOfStart() const;
  void AddEdge(int before, int after, int64_t delay);
  void AddEdgesFromAlike(int stage, int micro_batch);
  bool FirstOpsAreFixed() const;
  bool MayFuse(int stage, int micro_batch) const;
  int64_t Units(TimeNs time) const { return time / unit_; }
  int64_t Hop(int stage) const;  // between it and the next

  const SearchProblem problem_;
  const int micro_batches_;
  TimeNs unit_ = 1;
  bool exact_unit_ = true;
  int64_t horizon_ = 0;  // no op of an order without needless waits ends later
  TimeNs constant_ = 0;  // of the objective, beside the column
  std::vector<Node> nodes_;
  std::vector<int> previous_alike_;  // by micro-batch: -1, or the one before it that costs the same
  struct Edge {
    int before, after;
    int64_t delay;
  };
  std::vector<Edge> edges_;
  std::vector<bool> implied_;
  std::vector<int> fused_;  // column by stage and micro-batch, -1: not fused
  std::vector<int> order_;  // column by pair
  std::vector<int> first_;  // by rank: the column of its first op's start
  std::vector<std::vector<int>> by_rank_;
  std::vector<double> start_;
  int choices_ = 0;
  IntegerProgram program_;
};

}  // namespace spiritlevel
