// The handcrafted zero-bubble schedules: ZB-H1 and ZB-H2 (arXiv 2401.10241, section 2) and ZB-V
// (arXiv 2405.15362; the order is that of PyTorch's ZBVZeroBubble).
#include <algorithm>

#include "sim/schedules/generators.h"
#include "sim/schedules/row.h"

namespace spiritlevel {
namespace {

// `depth` 1 is H1, with the in-flight micro-batches of 1F1B; `depth` 2 is H2, with twice the
// warm-up, so that every rank stays busy until the optimizer steps.
Orders HandcraftedZeroBubble(int ranks, int micro_batches, int depth) {
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    Row row;
    int f = 0;
    int w = 0;
    while (f < std::min(depth * (ranks - 1 - rank), micro_batches)) row.F(rank, f++);
    for (int b = 0; b < micro_batches; ++b) {
      if (f < micro_batches) row.F(rank, f++);
      row.B(rank, b);
      // W lags its B by a slot a rank, which keeps B, and so the ranks above, ahead.
      if (b >= depth * rank) row.W(rank, w++);
    }
    while (w < micro_batches) row.W(rank, w++);
    orders.push_back(row.Take());
  }
  return orders;
}

// One rank of ZB-V. Its first stage is 0 below, its second 1. The order is written for at least
// 2p - 1 micro-batches; those that do not exist are left out.
class ZbVRank {
 public:
  ZbVRank(int ranks, int rank, int micro_batches)
      : stages_{rank, 2 * ranks - 1 - rank}, micro_batches_(micro_batches) {}

  std::vector<Op> Write(int ranks, int rank) {
    const int n = std::max(micro_batches_, 2 * ranks - 1);
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) F(0);
    for (int i = 0; i < rank; ++i) F(1), F(0);
    for (int i = 0; i < ranks - rank; ++i) F(1), B(1), W(1);
    while (f_[1] < f_[0] || f_[0] < n) {
      if (f_[0] < n) F(0);
      B(0), W(0);
      F(1), B(1), W(1);
    }
    for (int i = 0; i < rank; ++i) B(0), B(1);
    for (int i = 0; i < ranks - rank; ++i) B(0), W(0);
    while (w_[1] < b_[1]) W(1);
    while (w_[0] < b_[0]) W(0);
    return row_.Take();
  }

 private:
  void F(int chunk) {
    if (const int i = f_[chunk]++; i < micro_batches_) row_.F(stages_[chunk], i);
  }
  void B(int chunk) {
    if (const int i = b_[chunk]++; i < micro_batches_) row_.B(stages_[chunk], i);
  }
  void W(int chunk) {
    if (const int i = w_[chunk]++; i < micro_batches_) row_.W(stages_[chunk], i);
  }

  int stages_[2];
  int micro_batches_;
  int f_[2] = {0, 0};
  int b_[2] = {0, 0};
  int w_[2] = {0, 0};
  Row row_;
};

}  // namespace

Orders ZbH1(int ranks, int micro_batches) {
  return HandcraftedZeroBubble(ranks, micro_batches, 1);
}

Orders ZbH2(int ranks, int micro_batches) {
  return HandcraftedZeroBubble(ranks, micro_batches, 2);
}

Orders ZbV(int ranks, int micro_batches) {
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    orders.push_back(ZbVRank(ranks, rank, micro_batches).Write(ranks, rank));
  }
  return orders;
}

}  // namespace spiritlevel
