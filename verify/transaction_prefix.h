// PrefixTable: the squared gradient norm as it comes together, parameter by parameter in model
// order, where every rank of a run can see it.
//
// Each rank publishes the partials of its parameters when it has their gradients, which is before
// its optimizer step. A stage may step before the norm is known if no parameter from the first
// stage to its own has overflowed and their norm is under the threshold (Qi et al., Zero Bubble
// Pipeline Parallelism, section 4). Nobody waits here: a forward of the next iteration that reaches
// a stage has passed all stages before it, whose ranks have published by then.
//
//   PrefixTable table({12, 9, 12});            // parameters of each stage
//   table.Publish(iteration, /*stage=*/0, partials);
//   table.UpTo(iteration, /*stage=*/0);        // nullopt as long as something is missing
//
// Lies in memory that processes forked from this one share. Cells of an iteration are used again
// two iterations later, when no rank can still ask for them. Where ranks have no memory in common
// each has a table of its own, and PrefixSender tells the others what it publishes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "verify/arena.h"
#include "verify/side_channel.h"

namespace spiritlevel {

// The squared norm of some gradients.
struct SquaredNorm {
  double sum = 0;
  bool has_overflow = false;  // Inf or NaN in one of them

  void Add(double partial);

  friend bool operator==(const SquaredNorm&, const SquaredNorm&) = default;
};

class PrefixTable {
 public:
  // Of all stages that a rank holds, in one iteration.
  using Partials = std::vector<std::pair<int, std::vector<double>>>;

  explicit PrefixTable(const std::vector<int>& parameters_by_stage);

  int num_stages() const { return static_cast<int>(begin_.size()) - 1; }
  // Of all of a stage's parameters, in its order; again only with the same bits (twins).
  void Publish(int64_t iteration, int stage, std::span<const double> partials);
  // Over the stages 0 to `stage`.
  std::optional<SquaredNorm> UpTo(int64_t iteration, int stage) const;
  std::optional<SquaredNorm> Full(int64_t iteration) const {
    return UpTo(iteration, num_stages() - 1);
  }
  // Forgets everything; while nobody runs.
  void Clear();

 private:
  struct Cell {
    std::atomic<uint64_t> bits{0};
    std::atomic<int64_t> iteration{kNever};
  };
  static constexpr int64_t kNever = -1;
  std::span<Cell> CellsOf(int64_t iteration) const;

  std::vector<size_t> begin_;  // by stage: its first parameter; and the end
  Arena arena_;
  std::span<Cell> cells_;
};

// What a rank publishes is sent to all ranks of its replica, which put it into tables of their own.
//
// A forward that reaches a stage may overtake what its forerunners have published, since that came
// another way. But it has been sent, so whoever needs it then may wait for it.
class PrefixSender {
 public:
  static constexpr int kTopic = 1;

  PrefixSender(int ranks, int rank, int replica, SideChannel& side)
      : ranks_(ranks), rank_(rank), replica_(replica), side_(side) {}

  void Send(int64_t iteration, const PrefixTable::Partials& partials);
  // All that has come by now. Of iterations before `oldest` nobody wants to know any more.
  void TakeAll(int64_t oldest, PrefixTable& table);
  // Waits for one more.
  void TakeNext(int64_t oldest, PrefixTable& table);

 private:
  int ranks_;
  int rank_;
  int replica_;
  SideChannel& side_;
};

}  // namespace spiritlevel
