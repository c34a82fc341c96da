// GPipe (arXiv 1811.06965, section 2.2) and 1F1B (PipeDream-Flush, arXiv 2006.09503, section 3.1).
#include <algorithm>

#include "sim/schedules/generators.h"
#include "sim/schedules/row.h"

namespace spiritlevel {

Orders GPipe(int ranks, int micro_batches) {
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    Row row;
    for (int i = 0; i < micro_batches; ++i) row.F(rank, i);
    for (int i = 0; i < micro_batches; ++i) row.BW(rank, i);
    orders.push_back(row.Take());
  }
  return orders;
}

Orders OneFOneB(int ranks, int micro_batches) {
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    Row row;
    int f = 0;
    // A rank needs as many forwards in flight as there are ranks from it to the last.
    while (f < std::min(ranks - 1 - rank, micro_batches)) row.F(rank, f++);
    for (int b = 0; b < micro_batches; ++b) {
      if (f < micro_batches) row.F(rank, f++);
      row.BW(rank, b);
    }
    orders.push_back(row.Take());
  }
  return orders;
}

}  // namespace spiritlevel
