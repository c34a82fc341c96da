#include "verify/training_run_work.h"

#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "verify/checkpoint_bytes.h"

namespace spiritlevel {
namespace {

void WriteCounts(const StageCounts& counts, ByteWriter* to) {
  for (const int64_t number :
       {counts.stage, counts.eager, counts.skipped, counts.late, counts.undecided,
        counts.rolled_back, counts.dropped_forwards, counts.overflows}) {
    to->Number(number);
  }
}

StageCounts ReadCounts(ByteReader* from) {
  StageCounts counts;
  for (int64_t* number :
       {&counts.stage, &counts.eager, &counts.skipped, &counts.late, &counts.undecided,
        &counts.rolled_back, &counts.dropped_forwards, &counts.overflows}) {
    *number = from->Number<int64_t>();
  }
  return counts;
}

std::string_view TextOf(const Payload& payload) {
  return {reinterpret_cast<const char*>(payload.bytes().data()), payload.size()};
}

}  // namespace

void TrainingWork::Load(const TrainingState& state) {
  if (!state.parameters.empty()) {
    for (const std::unique_ptr<HeldStage>& held : model().stages()) {
      PutStates(state, &held->stage.parameters(), &held->optimizer);
    }
  }
  transaction().Resume(state.scalars);
}

Payload TrainingWork::Finish() {
  RankRecord told = ParseRankRecord(ModelWork::Finish().bytes());
  TrainingRecord before = transaction().TakeTold();
  told.steps.insert(told.steps.begin(), std::make_move_iterator(before.begin()),
                    std::make_move_iterator(before.end()));
  const Payload record = Serialize(told);
  SPIRITLEVEL_CHECK(transaction().is_drained(), "a state is packed at a drain point");
  ParameterStates states;
  for (const std::unique_ptr<HeldStage>& held : model().stages()) {
    CollectStates(held->stage.parameters(), held->optimizer, &states);
  }
  ByteWriter to;
  to.Text(Pack(transaction().scalars(), states));
  to.Number(static_cast<int64_t>(transaction().counts().size()));
  for (const StageCounts& counts : transaction().counts()) WriteCounts(counts, &to);
  to.Text(TextOf(record));
  return Payload::CopyOf(std::as_bytes(std::span(to.bytes())));
}

TrainingResult ParseTrainingResult(const Payload& payload) {
  ByteReader from(TextOf(payload));
  TrainingResult result{.shard = from.Text(), .counts = {}, .record = {}};
  const auto stages = from.Number<int64_t>();
  for (int64_t i = 0; i < stages; ++i) result.counts.push_back(ReadCounts(&from));
  const std::string record = from.Text();
  result.record = Payload::CopyOf(std::as_bytes(std::span(record)));
  SPIRITLEVEL_CHECK(from.is_at_end(), "a rank's result is one");
  return result;
}

}  // namespace spiritlevel
