// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2) and PyTorch's
// InterleavedZeroBubble, which splits its backward.
//
// Micro-batches go through in groups: a group passes the rank's first chunk, then its second, and
// so on, before the next group's turn; the last group may be smaller. Backwards take the chunks
// from the last to the first.
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/schedules/generators.h"
#include "sim/schedules/row.h"

namespace spiritlevel {
namespace {

struct Turn {
  int chunk;
  int micro_batch;
};

std::vector<Turn> Turns(int micro_batches, int chunks, int group) {
  std::vector<Turn> turns;
  for (int first = 0; first < micro_batches;) {
    const int end = first + std::min(group, micro_batches - first);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = first; i < end; ++i) turns.push_back({chunk, i});
    }
    first = end;
  }
  return turns;
}

}  // namespace

Orders Interleaved(int ranks, int micro_batches, int stages_per_rank, int group) {
  const std::vector<Turn> turns = Turns(micro_batches, stages_per_rank, group);
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    Row row;
    const auto forward = [&](const Turn& t) { row.F(t.chunk * ranks + rank, t.micro_batch); };
    const auto backward = [&](const Turn& t) {
      row.BW((stages_per_rank - 1 - t.chunk) * ranks + rank, t.micro_batch);
    };
    // Factor 2: the last chunk's backward needs a round trip over the ranks behind this one.
    const int64_t warm_up = int64_t{stages_per_rank - 1} * group + 2 * int64_t{ranks - 1 - rank};
    size_t f = 0;
    while (f < std::min(static_cast<size_t>(warm_up), turns.size())) forward(turns[f++]);
    for (const Turn& b : turns) {
      if (f < turns.size()) forward(turns[f++]);
      backward(b);
    }
    orders.push_back(row.Take());
  }
  return orders;
}

Orders InterleavedZb(int ranks, int micro_batches, int stages_per_rank, int group) {
  const std::vector<Turn> turns = Turns(micro_batches, stages_per_rank, group);
  Orders orders;
  for (int rank = 0; rank < ranks; ++rank) {
    Row row;
    const auto backward_stage = [&](const Turn& t) {
      return (stages_per_rank - 1 - t.chunk) * ranks + rank;
    };
    // Factor 1 is enough here: B leaves for the rank below before its W is done.
    const int64_t warm_up = int64_t{stages_per_rank - 1} * group + (ranks - 1 - rank);
    size_t f = 0;
    size_t w = 0;
    const auto forward = [&] {
      row.F(turns[f].chunk * ranks + rank, turns[f].micro_batch);
      ++f;
    };
    const auto weight_grad = [&] {
      row.W(backward_stage(turns[w]), turns[w].micro_batch);
      ++w;
    };
    while (f < std::min(static_cast<size_t>(warm_up), turns.size())) forward();
    for (size_t b = 0; b < turns.size(); ++b) {
      if (f < turns.size()) forward();
      row.B(backward_stage(turns[b]), turns[b].micro_batch);
      if (b >= static_cast<size_t>(rank)) weight_grad();
    }
    while (w < turns.size()) weight_grad();
    orders.push_back(row.Take());
  }
  return orders;
}

}  // namespace spiritlevel
