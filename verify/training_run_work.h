// TrainingWork: a ModelWork with a transactional tail whose result holds all that a TrainingRun
// needs of a rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verify/checkpoint.h"
#include "verify/model_work.h"
#include "verify/transaction_tail.h"

namespace spiritlevel {

class TrainingWork : public ModelWork {
 public:
  using ModelWork::ModelWork;

  TransactionalTail& transaction() { return static_cast<TransactionalTail&>(tail()); }
  // Puts the tensors and scalars in place; a state without parameters leaves their first values.
  void Load(const TrainingState& state);
  // A TrainingResult.
  Payload Finish() override;
};

struct TrainingResult {
  std::string shard{};                // Pack()'s
  std::vector<StageCounts> counts{};  // since the work was made
  Payload record{};                   // ModelWork's
};
TrainingResult ParseTrainingResult(const Payload& payload);

}  // namespace spiritlevel
