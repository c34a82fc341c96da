// Routes: where each op's input comes from and where its output goes, on this rank or by a message.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/program.h"

namespace spiritlevel {

struct Route {
  // A message, or a cell of the rank's own results; at most one of both, and neither where the
  // pipeline begins or ends.
  MessageId input_message = kNone;
  int32_t input_cell = kNone;
  MessageId output_message = kNone;
  int32_t output_cell = kNone;
};

class Routes {
 public:
  explicit Routes(const Program& program);

  // Of a pair, of the first op and of the second.
  const Route& of(NodeId node, int which) const {
    return routes_[node][static_cast<size_t>(which)];
  }
  int32_t num_cells() const { return 2 * num_stages_ * num_micro_batches_; }
  // What a message carries is this op's result.
  const Op& op_of(MessageId message) const { return op_of_[message]; }

 private:
  void FindRanks(const Program& program);
  void AddOp(const Program& program, NodeId node, int which, const Op& op);
  // What the stage receives of a micro-batch: from the stage before, or from the one behind.
  int32_t CellOf(bool forward, int stage, int micro_batch) const {
    return ((forward ? 0 : 1) * num_stages_ + stage) * num_micro_batches_ + micro_batch;
  }

  int32_t num_stages_;
  int32_t num_micro_batches_;
  std::vector<int32_t> rank_of_;  // by stage, then micro-batch
  std::vector<std::array<Route, 2>> routes_;
  std::vector<Op> op_of_;
};

}  // namespace spiritlevel
