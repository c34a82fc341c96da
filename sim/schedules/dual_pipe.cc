// DualPipe (DeepSeek-V3 report, arXiv 2412.19437, section 3.2.1) and DualPipeV, which cuts it in
// half: the two directions are mirror images, so one rank can run both ends.
//
// Both are eight steps of the same shape. Phase 0 is the stage nearer to where its micro-batches
// enter, phase 1 the stage nearer to where they leave; `depth` counts from the entry, `depths` is
// how many ranks a phase passes before it turns.
#include <algorithm>
#include <deque>

#include "sim/schedules/generators.h"
#include "sim/schedules/row.h"

namespace spiritlevel {
namespace {

class DualPipeRank {
 public:
  // stages[x] and first_micro_batch[x] are those of phase x.
  DualPipeRank(const int (&stages)[2], const int (&first_micro_batch)[2])
      : stages_{stages[0], stages[1]},
        f_{first_micro_batch[0], first_micro_batch[1]},
        b_{first_micro_batch[0], first_micro_batch[1]} {}

  // `per_phase` micro-batches pass through each phase.
  std::vector<Op> Write(int depth, int depths, int per_phase) {
    const int above = depths - 1 - depth;
    for (int i = 0; i < 2 * above; ++i) F(0);
    for (int i = 0; i < depth + 1; ++i) F(0), F(1);
    for (int i = 0; i < above; ++i) B(1), W(), F(1);
    for (int i = 0; i < per_phase - 2 * depths + depth + 1; ++i) {
      // At the turn the first F has only just been made possible; it is not fused.
      const bool fused = i > 0 || above > 0;
      FAndBW(0, 1, fused);
      FAndBW(1, 0, true);
    }
    for (int i = 0; i < above; ++i) BW(1), FAndBW(1, 0, true);
    CoolDown(depth);
    for (int i = 0; i < above; ++i) W(), B(0);
    for (int i = 0; i < depth + 1; ++i) W();
    return row_.Take();
  }

 private:
  // From its middle on the backward is split, so that W can fill the waits that follow.
  void CoolDown(int depth) {
    const int middle = (depth + 1) / 2;
    const bool odd = depth % 2 == 1;
    for (int i = 0; i < depth + 1; ++i) {
      const bool split_1 = i > middle || (i == middle && odd);
      const bool split_0 = i >= middle;
      split_1 ? B(1) : BW(1);
      split_0 ? B(0) : BW(0);
    }
  }

  void F(int phase) { row_.F(stages_[phase], f_[phase]++); }
  void BW(int phase) { row_.BW(stages_[phase], b_[phase]++); }
  void B(int phase) {
    pending_.push_back({.micro_batch = b_[phase], .stage = static_cast<uint16_t>(stages_[phase])});
    row_.B(stages_[phase], b_[phase]++);
  }
  void W() {
    row_.W(pending_.front().stage, pending_.front().micro_batch);
    pending_.pop_front();
  }
  void FAndBW(int forward_phase, int backward_phase, bool fused) {
    F(forward_phase);
    if (fused) row_.OverlapNext();
    BW(backward_phase);
  }

  int stages_[2];
  int f_[2];
  int b_[2];
  std::deque<Op> pending_;  // B done, W to do
  Row row_;
};

}  // namespace

Orders DualPipe(int ranks, int micro_batches) {
  Orders orders;
  const int half = micro_batches / 2;
  for (int rank = 0; rank < ranks; ++rank) {
    const int depth = std::min(rank, ranks - 1 - rank);
    // Direction 0 enters at rank 0, direction 1 at the last rank.
    const int entering = rank < ranks / 2 ? 0 : 1;
    DualPipeRank writer({depth, ranks - 1 - depth}, {entering * half, (1 - entering) * half});
    orders.push_back(writer.Write(depth, ranks / 2, half));
  }
  return orders;
}

Orders DualPipeV(int ranks, int micro_batches) {
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    DualPipeRank writer({rank, 2 * ranks - 1 - rank}, {0, 0});
    orders.push_back(writer.Write(rank, ranks, micro_batches));
  }
  return orders;
}

}  // namespace spiritlevel
