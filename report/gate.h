// The gate: is what is played now worse than what a baseline file says?
//
//   const GateRecord baseline = ReadGateRecord(ReadFile(path), path);
//   const GateVerdict verdict = JudgeGate(baseline, now, rules);
//   verdict.passes();
//
// A GateRecord is both what a baseline holds and what was played. Whatever a baseline lacks or says
// in a way that cannot be understood is an InputError, never a pass.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spiritlevel {

enum class GateMetric : uint8_t {
  kMakespan,
  kStep,
  kBubbleRate,
  kPeakBytes,             // of the fullest rank
  kExposedCommunication,  // rank time in which data was only waited for on its way
  kCertificateGap,        // of the largest rank span, over its lower bound
};
inline constexpr int kNumGateMetrics = 6;

std::string_view Name(GateMetric metric);  // its key in the file: "makespan_ns"

// Rates are kept as whole billionths, so that a file gives back what was put into it and all
// metrics are compared as integers.
inline constexpr int64_t kGateRateUnit = 1'000'000'000;
bool IsRate(GateMetric metric);
int64_t GateRate(double share);

// One schedule on one scenario.
struct GateEntry {
  std::string schedule;
  bool valid = false;    // it ran, and the checker found nothing
  bool fits = false;     // and within the memory limit
  std::string reason{};  // why not
  // By metric; nothing where it could not run, or nothing can be said.
  std::array<std::optional<int64_t>, kNumGateMetrics> figures{};

  std::optional<int64_t>& figure(GateMetric metric) { return figures[static_cast<size_t>(metric)]; }
  const std::optional<int64_t>& figure(GateMetric metric) const {
    return figures[static_cast<size_t>(metric)];
  }

  friend bool operator==(const GateEntry&, const GateEntry&) = default;
};

struct GateScenario {
  std::string name;
  int ranks = 0;
  int micro_batches = 0;
  std::string profile{};  // digest of what its times come from; empty where they are typed in
  std::vector<GateEntry> entries{};

  friend bool operator==(const GateScenario&, const GateScenario&) = default;
};

struct GateRecord {
  std::map<std::string, std::string> settings{};  // how it was played, by flag: "tail", "barrier"
  std::vector<GateScenario> scenarios{};

  friend bool operator==(const GateRecord&, const GateRecord&) = default;
};

// Indented, one key a line, so that a pull request shows what changed. `name` is for errors.
std::string ToJson(const GateRecord& record);
GateRecord ReadGateRecord(std::string_view json, std::string_view name);

// Throws InputError, telling how to make a new baseline, where the two cannot be compared: played
// otherwise, a scenario that the baseline does not have, or has in another shape or with another
// profile; or one of `asked_for`, schedules named by the user, that it does not have.
void RequireComparable(const GateRecord& baseline, const GateRecord& now,
                       const std::vector<std::string>& asked_for, std::string_view name);

// Which metrics are compared, and how much more than the baseline is let pass. What does not run or
// fit any more is worse whatever is watched.
class GateRules {
 public:
  // "bubble_rate": that one, and others so named, are watched; without any, all are. Throws
  // InputError, as for one named twice.
  void Watch(std::string_view metric);
  // "step_ns=0.5": in percent of the baseline; of rates, in percentage points. Throws InputError,
  // as for one named twice.
  void Tolerate(std::string_view metric_and_percent);
  // Throws InputError for a tolerance that would do nothing.
  void RefuseIdle() const;

  bool watches_all() const;
  bool watches(GateMetric metric) const;
  double percent(GateMetric metric) const { return percent_[At(metric)].value_or(0); }
  bool Allows(GateMetric metric, int64_t before, int64_t after) const;

 private:
  static size_t At(GateMetric metric) { return static_cast<size_t>(metric); }

  std::array<bool, kNumGateMetrics> named_{};
  std::array<std::optional<double>, kNumGateMetrics> percent_{};
};

// From good to bad.
enum class GateState : uint8_t { kSame, kNew, kBetter, kTolerated, kWorse };

std::string_view Name(GateState state);  // "same", "new", "better", "tolerated", "worse"

struct GateChange {
  GateMetric metric = GateMetric::kMakespan;
  GateState state = GateState::kSame;
  std::optional<int64_t> before{};
  std::optional<int64_t> after{};

  // More than before, as a share of it; of rates, the difference. Nothing where one is not there,
  // and of what was zero.
  std::optional<double> growth() const;
};

// One schedule on one scenario, against the baseline.
struct GateRow {
  std::string scenario;
  std::string schedule;
  GateState state = GateState::kSame;  // the worst of its changes and of `note`
  std::string note{};                  // what is not a number: "does not fit any more: ..."
  std::vector<GateChange> changes{};   // the worst first
};

struct GateVerdict {
  std::vector<GateRow> rows;          // as played, then those of the baseline that were not
  std::vector<GateMetric> watched{};  // empty: all

  int Count(GateState state) const;
  bool passes() const { return Count(GateState::kWorse) == 0; }
  bool changed() const { return Count(GateState::kSame) < static_cast<int>(rows.size()); }
};

GateVerdict JudgeGate(const GateRecord& baseline, const GateRecord& now, const GateRules& rules);

}  // namespace spiritlevel
