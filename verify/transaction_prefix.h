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
// two iterations later, when no rank can still ask for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "verify/arena.h"

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

}  // namespace spiritlevel
