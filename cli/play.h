// Plays schedules on a scenario: Schedule -> Program -> Timeline, judged and summed up.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "report/html.h"
#include "report/result.h"
#include "scenarios/scenario.h"
#include "sim/program.h"
#include "sim/schedules/catalog.h"
#include "sim/timeline.h"

namespace spiritlevel {

class SpanCertifier;

// A schedule as the user asks for it: by name, or an order read from a file.
struct ScheduleChoice {
  std::string name;
  const ScheduleInfo* info = nullptr;
  std::optional<Orders> orders{};
  std::vector<std::string> notes{};
};

ScheduleChoice NamedSchedule(std::string_view name);
ScheduleChoice ScheduleFromFile(const std::string& file);

inline constexpr int kMaxIterations = 10'000;

struct PlayOptions {
  Posting posting = Posting::kIdeal;
  Receives receives = Receives::kEarly;
  Channels channels = Channels::kPair;
  Tail tail = Tail::kBarrier;
  WeightGrads weight_grads = WeightGrads::kByMicroBatch;
  double rejection = 0;  // probability, of a speculative step
  int iterations = 1;
  // By rank, in place of the scenario's; empty where one limit holds for all.
  std::vector<Bytes> limits{};
  bool pack_html = false;  // keep what the HTML report shows, in Played::html
  // Else a schedule of the catalog counts as legal, and the peaks of its summary say whether it
  // fits: for what is only compared with.
  bool judge = true;
};

// One limit for all ranks, or one for each, in place of what the scenario says.
void LimitMemory(const std::vector<Bytes>& limits, Scenario* scenario, PlayOptions* options);

// Throws InputError if the choice cannot be made on this scenario's shape.
Schedule MakeSchedule(const Scenario& scenario, const ScheduleChoice& choice);

// A run with everything it was made of. `program` and `timeline` hold the iterations asked for; the
// period of more is read off the flat evaluator. Where versions may be rejected they hold a run in
// which one is, and as many iterations as that takes; `rejected` is the one that left it.
struct Played {
  Result result;
  std::optional<InputError> error;  // why it could not run, with the way out
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Timeline> timeline;
  std::optional<int> rejected{};
  HtmlRun html{};
};

// A choice that cannot run gives a result with its reason, and no program. With a certifier (of the
// same scenario) what is judged gets a certificate.
Played Play(const Scenario& scenario, const ScheduleChoice& choice, const PlayOptions& options,
            SpanCertifier* certifier = nullptr);

// The error of Play(), found without playing. Of a model without its profile, those that do not
// depend on times.
void ThrowIfItCannotRun(const Scenario& scenario, const ScheduleChoice& choice,
                        const PlayOptions& options);

struct Compared {
  Comparison comparison;
  std::vector<HtmlRun> runs;            // of its results, if they were to be packed
  std::vector<std::string> left_out{};  // choices that were not played any more
};

// All of them, side by side on the machine's cores, each with a certificate; the answer does not
// depend on how many. `skips_rest` is asked before each but the first and 1F1B: where it says so,
// that one is left out.
Compared Compare(const Scenario& scenario, const std::vector<ScheduleChoice>& choices,
                 const PlayOptions& options, const std::function<bool()>& skips_rest = {});

// A comparison without results: what is known of the scenario alone.
Comparison DescribeScenario(const Scenario& scenario, const PlayOptions& options);

}  // namespace spiritlevel
