// Schedule: the order in which each rank runs its ops.
//
// It holds no times: a Program made from it and Simulate() do. A Schedule that exists can run under
// ideal posting: the constructor refuses anything else.
//
//   const Schedule s = Schedule::Parse("0F0 0F1 0BW0 0BW1\n"    // rank 0
//                                      "1F0 1BW0 1F1 1BW1\n");  // rank 1
//   s.ops(0)[2];                                // 0BW0
//   s.rank_of(/*stage=*/1, /*micro_batch=*/0);  // 1
//
// Immutable, hence safe to share between threads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/op.h"

namespace spiritlevel {

class Schedule {
 public:
  // Stages are 0..S-1 and micro-batches 0..m-1, S and m being one more than the largest seen.
  // Throws InputError unless
  //   - every rank has an op, and each (stage, micro-batch) its F exactly once;
  //   - each F has one BW, or one B and one W, all on the rank of the F;
  //   - an F&B pair is an F and a BW, or a BW and an F, that stand next to each other;
  //   - rank orders and data dependencies together have no cycle.
  explicit Schedule(const Orders& orders);
  static Schedule Parse(std::string_view text);

  int num_ranks() const { return static_cast<int>(rank_begin_.size()) - 1; }
  int num_stages() const { return num_stages_; }
  int num_micro_batches() const { return num_micro_batches_; }

  std::span<const Op> ops(int rank) const {
    return {ops_.data() + rank_begin_[rank], ops_.data() + rank_begin_[rank + 1]};
  }
  std::span<const Op> all_ops() const { return ops_; }

  int rank_of(int stage, int micro_batch) const {
    return rank_of_[static_cast<size_t>(stage) * stage_stride_ +
                    static_cast<size_t>(micro_batch) * micro_batch_stride_];
  }

  // True unless some stage lies on different ranks for different micro-batches (DualPipe).
  bool one_rank_per_stage() const { return micro_batch_stride_ == 0; }

  // The stages that rank `rank` holds, ascending; a stage's place in it is its chunk.
  std::span<const int> stages_of(int rank) const { return stages_of_[rank]; }
  int chunk_of(int rank, int stage) const;

  // How many times the model's parameters are held in all: 2 for DualPipe, else 1.
  int parameter_copies() const;

  std::string ToString() const;  // Parse() reads it back
  Orders ToOrders() const;

  friend bool operator==(const Schedule& a, const Schedule& b) {
    return a.ops_ == b.ops_ && a.rank_begin_ == b.rank_begin_;
  }

 private:
  void Place(const Orders& orders);
  void CheckCounts() const;
  void CheckRuns() const;

  int num_stages_ = 0;
  int num_micro_batches_ = 0;
  std::vector<Op> ops_;  // rank by rank
  std::vector<int32_t> rank_begin_;
  std::vector<uint16_t> rank_of_;
  size_t stage_stride_ = 1;
  size_t micro_batch_stride_ = 0;
  std::vector<std::vector<int>> stages_of_;
};

}  // namespace spiritlevel
