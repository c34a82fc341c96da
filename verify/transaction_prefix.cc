#include "verify/transaction_prefix.h"

#include <bit>
#include <cmath>
#include <string>

#include "base/check.h"
#include "verify/checkpoint_bytes.h"

namespace spiritlevel {
namespace {

std::vector<size_t> BeginsOf(const std::vector<int>& counts) {
  std::vector<size_t> begins{0};
  for (const int count : counts) begins.push_back(begins.back() + static_cast<size_t>(count));
  return begins;
}

constexpr size_t kSlack = 4096;

}  // namespace

void SquaredNorm::Add(double partial) {
  sum += partial;
  if (!std::isfinite(partial)) has_overflow = true;
}

PrefixTable::PrefixTable(const std::vector<int>& parameters_by_stage)
    : begin_(BeginsOf(parameters_by_stage)),
      arena_(kSlack + 2 * begin_.back() * sizeof(Cell), /*shared=*/true),
      cells_(arena_.Array<Cell>(2 * begin_.back())) {}

std::span<PrefixTable::Cell> PrefixTable::CellsOf(int64_t iteration) const {
  return cells_.subspan(static_cast<size_t>(iteration % 2) * begin_.back(), begin_.back());
}

void PrefixTable::Publish(int64_t iteration, int stage, std::span<const double> partials) {
  SPIRITLEVEL_CHECK(iteration >= 0 && stage >= 0 && stage < num_stages(), "of a stage");
  const auto at = static_cast<size_t>(stage);
  SPIRITLEVEL_CHECK(partials.size() == begin_[at + 1] - begin_[at], "of all its parameters");
  const std::span<Cell> cells = CellsOf(iteration).subspan(begin_[at], partials.size());
  for (size_t i = 0; i < partials.size(); ++i) {
    const auto bits = std::bit_cast<uint64_t>(partials[i]);
    SPIRITLEVEL_CHECK(cells[i].iteration.load(std::memory_order_acquire) != iteration ||
                          cells[i].bits.load(std::memory_order_relaxed) == bits,
                      "the copies of a stage have the same gradients");
    cells[i].bits.store(bits, std::memory_order_relaxed);
    cells[i].iteration.store(iteration, std::memory_order_release);
  }
}

std::optional<SquaredNorm> PrefixTable::UpTo(int64_t iteration, int stage) const {
  SquaredNorm norm;
  const std::span<const Cell> cells = CellsOf(iteration);
  for (size_t i = 0; i < begin_[static_cast<size_t>(stage) + 1]; ++i) {
    if (cells[i].iteration.load(std::memory_order_acquire) != iteration) return std::nullopt;
    norm.Add(std::bit_cast<double>(cells[i].bits.load(std::memory_order_relaxed)));
  }
  return norm;
}

void PrefixTable::Clear() {
  for (Cell& cell : cells_) cell.iteration.store(kNever, std::memory_order_relaxed);
}

namespace {

void PublishSent(const SideMessage& message, int64_t oldest, PrefixTable& table) {
  ByteReader from(
      {reinterpret_cast<const char*>(message.payload.bytes().data()), message.payload.size()});
  const auto iteration = from.Number<int64_t>();
  if (iteration < oldest) return;
  while (!from.is_at_end()) {
    const auto stage = from.Number<int32_t>();
    std::vector<double> partials(from.Number<uint64_t>());
    for (double& partial : partials) partial = from.Number<double>();
    table.Publish(iteration, stage, partials);
  }
}

}  // namespace

void PrefixSender::Send(int64_t iteration, const PrefixTable::Partials& partials) {
  ByteWriter to;
  to.Number(iteration);
  for (const auto& [stage, numbers] : partials) {
    to.Number(static_cast<int32_t>(stage));
    to.Number(static_cast<uint64_t>(numbers.size()));
    for (const double number : numbers) to.Number(number);
  }
  for (int other = 0; other < ranks_; ++other) {
    if (other == rank_) continue;
    side_.Send(replica_ * ranks_ + other, kTopic, std::as_bytes(std::span(to.bytes())));
  }
}

void PrefixSender::TakeAll(int64_t oldest, PrefixTable& table) {
  while (const std::optional<SideMessage> message = side_.Poll(kTopic)) {
    PublishSent(*message, oldest, table);
  }
}

void PrefixSender::TakeNext(int64_t oldest, PrefixTable& table) {
  PublishSent(side_.Receive(kTopic), oldest, table);
}

}  // namespace spiritlevel
