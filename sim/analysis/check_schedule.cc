#include "sim/analysis/check_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "sim/analysis/check_deadlock.h"
#include "sim/analysis/check_orders.h"
#include "sim/analysis/check_placement.h"

namespace spiritlevel {
namespace {

using check::FlatOrders;
using check::kNoRank;
using check::kNowhere;
using check::OpIndex;

// One word for a (stage, micro-batch), to hang its passes on.
std::string CellText(int stage, int micro_batch) {
  return fmt::format("stage {}, micro-batch {}", stage, micro_batch);
}

std::string At(const FlatOrders& orders, OpIndex op) {
  const int rank = orders.rank_of[op];
  return fmt::format("rank {}, place {}", rank, op - orders.rank_begin[rank] + 1);
}

class ScheduleChecker {
 public:
  explicit ScheduleChecker(const Orders& orders) { Flatten(orders); }

  ScheduleVerdict Run() {
    verdict_.ranks = flat_.ranks();
    CheckRows();
    if (CheckOps() && SizeUp()) {
      PlaceOps();
      CheckPasses();
      JoinPairs();
      CheckPlacement();
      CheckDeadlock();
    } else {
      verdict_.description = "not a schedule";
    }
    verdict_.findings = findings_.Take();
    return std::move(verdict_);
  }

 private:
  void Flatten(const Orders& orders) {
    flat_.rank_begin.push_back(0);
    for (size_t rank = 0; rank < orders.size(); ++rank) {
      flat_.ops.insert(flat_.ops.end(), orders[rank].begin(), orders[rank].end());
      flat_.rank_of.resize(flat_.ops.size(), static_cast<int32_t>(rank));
      flat_.rank_begin.push_back(static_cast<OpIndex>(flat_.ops.size()));
    }
  }

  void CheckRows() {
    if (flat_.ranks() == 0) {
      findings_.Add("empty", [] { return std::string("there are no ranks"); });
    }
    for (int rank = 0; rank < flat_.ranks(); ++rank) {
      if (flat_.rank_begin[rank] != flat_.rank_begin[rank + 1]) continue;
      findings_.Add("empty", [&] { return fmt::format("rank {} has no ops", rank); });
    }
  }

  // False: the orders cannot be read as ops at all.
  bool CheckOps() {
    bool good = !flat_.ops.empty();
    for (OpIndex i = 0; i < flat_.ops.size(); ++i) {
      const Op& op = flat_.ops[i];
      if (op.micro_batch >= 0 && static_cast<int>(op.pass) < kNumPasses) continue;
      good = false;
      findings_.Add("bad_op", [&] {
        return op.micro_batch < 0
                   ? fmt::format("{}: micro-batch {} is below zero", At(flat_, i), op.micro_batch)
                   : fmt::format("{}: there is no such pass", At(flat_, i));
      });
    }
    return good;
  }

  // Every (stage, micro-batch) has at least two ops, so numbers that name far more of them than
  // there are ops are not worth a table: one line says so.
  bool SizeUp() {
    const auto by_stage = [](const Op& a, const Op& b) { return a.stage < b.stage; };
    const auto by_micro_batch = [](const Op& a, const Op& b) {
      return a.micro_batch < b.micro_batch;
    };
    const auto stage = std::max_element(flat_.ops.begin(), flat_.ops.end(), by_stage);
    const auto last = std::max_element(flat_.ops.begin(), flat_.ops.end(), by_micro_batch);
    const int64_t stages = int64_t{stage->stage} + 1;
    const int64_t micro_batches = int64_t{last->micro_batch} + 1;
    constexpr int64_t kSlack = 1 << 16;  // small files may have any holes they like
    if (micro_batches > std::numeric_limits<int32_t>::max() ||
        stages * micro_batches > static_cast<int64_t>(flat_.ops.size()) + kSlack) {
      findings_.Add("missing_pass", [&] {
        return fmt::format(
            "{} ({}) and {} ({}) name {} stages and {} micro-batches, but there are only {} ops",
            ToString(*stage), At(flat_, Index(stage)), ToString(*last), At(flat_, Index(last)),
            stages, micro_batches, flat_.ops.size());
      });
      return false;
    }
    verdict_.stages = flat_.stages = static_cast<int>(stages);
    verdict_.micro_batches = flat_.micro_batches = static_cast<int>(micro_batches);
    return true;
  }

  OpIndex Index(std::vector<Op>::iterator op) const {
    return static_cast<OpIndex>(op - flat_.ops.begin());
  }

  void PlaceOps() {
    flat_.where.resize(flat_.cell(flat_.stages, 0), {kNowhere, kNowhere, kNowhere, kNowhere});
    for (OpIndex i = 0; i < flat_.ops.size(); ++i) {
      const Op& op = flat_.ops[i];
      OpIndex& place =
          flat_.where[flat_.cell(op.stage, op.micro_batch)][static_cast<size_t>(op.pass)];
      if (place == kNowhere) {
        place = i;
        continue;
      }
      findings_.Add("doubled_pass", [&] {
        return fmt::format("{} stands twice: {} and {}", ToString(op), At(flat_, place),
                           At(flat_, i));
      });
    }
  }

  void CheckPasses() {
    for (int stage = 0; stage < flat_.stages; ++stage) {
      for (int i = 0; i < flat_.micro_batches; ++i) CheckPassesOf(stage, i);
    }
  }

  void CheckPassesOf(int stage, int micro_batch) {
    const auto& where = flat_.where[flat_.cell(stage, micro_batch)];
    const auto has = [&](Pass pass) { return where[static_cast<size_t>(pass)] != kNowhere; };
    const bool fused = has(Pass::kBW);
    const bool input = has(Pass::kB);
    const bool weight = has(Pass::kW);
    const char* missing = nullptr;
    if (!has(Pass::kF)) {
      missing = fused || input || weight ? "no F" : "no ops at all";
    } else if (!fused && !input && !weight) {
      missing = "no backward: neither BW nor B and W";
    } else if (!fused && !(input && weight)) {
      missing = input ? "B but no W" : "W but no B";
    }
    if (missing != nullptr) {
      findings_.Add("missing_pass", [&] {
        return fmt::format("{} has {}", CellText(stage, micro_batch), missing);
      });
    }
    if (fused && (input || weight)) {
      findings_.Add("doubled_pass", [&] {
        return fmt::format("{} has BW, and {} as well", CellText(stage, micro_batch),
                           input && weight ? "B and W"
                           : input         ? "B"
                                           : "W");
      });
    }
  }

  void JoinPairs() {
    flat_.joined.resize(flat_.ops.size());
    for (OpIndex i = 0; i < flat_.ops.size(); ++i) {
      if (!flat_.ops[i].overlaps_next) continue;
      const std::string wrong = WrongWithPair(i);
      if (wrong.empty()) {
        flat_.joined[i] = 1;
        ++i;
      } else {
        findings_.Add("bad_pair", [&] { return At(flat_, i) + ": " + wrong; });
      }
    }
  }

  std::string WrongWithPair(OpIndex i) const {
    const Op& a = flat_.ops[i];
    if (i + 1 == flat_.rank_begin[flat_.rank_of[i] + 1]) {
      return ToString(a) + " overlaps the next op, but is the last of its rank";
    }
    const Op& b = flat_.ops[i + 1];
    const std::string pair = fmt::format("({};{})", ToString(a), ToString(b));
    if (b.overlaps_next) return pair + " goes on with a third op";
    if (!(a.pass == Pass::kF && b.pass == Pass::kBW) &&
        !(a.pass == Pass::kBW && b.pass == Pass::kF)) {
      return pair + " is not an F and a BW";
    }
    if (a.stage == b.stage && a.micro_batch == b.micro_batch) {
      return pair + " overlaps a backward with its own forward";
    }
    return "";
  }

  void CheckPlacement() {
    std::vector<int32_t> rank_of_cell(flat_.where.size(), kNoRank);
    for (size_t cell = 0; cell < flat_.where.size(); ++cell) {
      rank_of_cell[cell] = RankOfCell(flat_.where[cell]);
    }
    const check::Placement placement = DetectPlacement(flat_, rank_of_cell);
    if (placement.kind == PlacementKind::kOther) CheckOneRankPerStage(rank_of_cell);
    verdict_.placement = placement.kind;
    verdict_.chunks_per_rank = placement.chunks_per_rank;
    verdict_.description = Describe(flat_, placement);
  }

  // kNoRank, with a finding, when its passes lie on several.
  int32_t RankOfCell(const std::array<OpIndex, kNumPasses>& passes) {
    OpIndex first = kNowhere;
    for (const OpIndex op : passes) {
      if (op == kNowhere) continue;
      if (first == kNowhere) first = op;
      if (flat_.rank_of[op] == flat_.rank_of[first]) continue;
      findings_.Add("split_over_ranks", [&] {
        return fmt::format("{} is on rank {}, but {} is on rank {}", ToString(flat_.ops[first]),
                           flat_.rank_of[first], ToString(flat_.ops[op]), flat_.rank_of[op]);
      });
      return kNoRank;
    }
    return first == kNowhere ? kNoRank : flat_.rank_of[first];
  }

  void CheckOneRankPerStage(const std::vector<int32_t>& rank_of_cell) {
    for (int stage = 0; stage < flat_.stages; ++stage) {
      const auto begin = rank_of_cell.begin() + static_cast<int64_t>(flat_.cell(stage, 0));
      const auto end = begin + flat_.micro_batches;
      const auto home = std::find_if(begin, end, [](int32_t r) { return r != kNoRank; });
      const auto away =
          std::find_if(home, end, [&](int32_t r) { return r != kNoRank && r != *home; });
      if (away == end) continue;
      findings_.Add("split_over_ranks", [&] {
        return fmt::format(
            "stage {} is on rank {} for micro-batch {} and on rank {} for micro-batch {}; only a "
            "bidirectional placement (stage s on rank s, or on rank p - 1 - s, the same for all "
            "stages of a micro-batch) has a stage on two ranks",
            stage, *home, home - begin, *away, away - begin);
      });
    }
  }

  void CheckDeadlock() {
    std::string words = check::DescribeDeadlock(flat_);
    if (!words.empty()) findings_.Add("deadlock", [&] { return std::move(words); });
  }

  FlatOrders flat_;
  FindingList findings_;
  ScheduleVerdict verdict_;
};

}  // namespace

ScheduleVerdict CheckSchedule(const Orders& orders) { return ScheduleChecker(orders).Run(); }

}  // namespace spiritlevel
