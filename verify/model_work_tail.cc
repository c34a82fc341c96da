#include "verify/model_work_tail.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/optimizer.h"

namespace spiritlevel {
namespace {

struct NormPart {
  int64_t number = 0;
  double squared = 0;
};

}  // namespace

Payload NormParts::Of(const RankModel& model) {
  std::vector<NormPart> parts;
  for (const auto& held : model.stages()) {
    const std::vector<double> norms = held->optimizer.SquaredNorms(held->gradients);
    for (size_t i = 0; i < norms.size(); ++i) {
      parts.push_back(
          {.number = model.numbers().first_of(held->number) + held->optimizer.owned()[i],
           .squared = norms[i]});
    }
  }
  return Payload::CopyOf(std::as_bytes(std::span(parts)));
}

double NormParts::SquaredNorm(const RankModel& model,
                              std::span<const std::span<const std::byte>> contributions) {
  const ParameterNumbers& numbers = model.numbers();
  std::vector<double> squares(static_cast<size_t>(numbers.size()), 0);
  std::vector<uint8_t> is_there(squares.size(), 0);
  for (const std::span<const std::byte> bytes : contributions) {
    SPIRITLEVEL_CHECK(bytes.size() % sizeof(NormPart) == 0, "a norm comes in parts");
    for (size_t at = 0; at < bytes.size(); at += sizeof(NormPart)) {
      NormPart part;
      std::memcpy(&part, bytes.data() + at, sizeof(part));
      SPIRITLEVEL_CHECK(part.number >= 0 && part.number < numbers.size(), "of a parameter");
      const auto i = static_cast<size_t>(part.number);
      SPIRITLEVEL_CHECK(!is_there[i] || std::bit_cast<uint64_t>(squares[i]) ==
                                            std::bit_cast<uint64_t>(part.squared),
                        "all who have a parameter have the same sum of its gradients");
      is_there[i] = 1;
      squares[i] = part.squared;
    }
  }
  double sum = 0;
  for (int i = 0; i < numbers.size(); ++i) {
    SPIRITLEVEL_CHECK(is_there[static_cast<size_t>(i)], "a norm is of all parameters");
    if (numbers.counts_in_norm(i)) sum += squares[static_cast<size_t>(i)];
  }
  return sum;
}

SimpleTail::SimpleTail(RankModel& model, const RankContext& context) : model_(model) {
  if (IsPostValidation(context.program.tail())) {
    throw InputError("tail: post-validation needs a tail that can take a step back",
                     "use a barrier, or none");
  }
}

Payload SimpleTail::Contribute(const SumCall&) { return NormParts::Of(model_); }

void SimpleTail::Combine(const SumCall&,
                         std::span<const std::span<const std::byte>> contributions) {
  norm_ = std::sqrt(NormParts::SquaredNorm(model_, contributions));
}

void SimpleTail::Step(const StepCall& call) {
  const int64_t step = model_.StepOf(call.iteration);
  const double most = model_.task().clip_norm;
  const float clip = norm_ && most > 0 ? cpu::ClipCoefficient(*norm_, most) : 1.0f;
  model_.StepAll(step, clip);
  model_.GatherParameters();
  model_.Tell(step, norm_, clip);
  model_.EndIteration();
  norm_.reset();
}

bool SimpleTail::Validate(const ValidationCall&) {
  SPIRITLEVEL_CHECK(false, "a barrier leaves nothing to validate");
  return false;
}

void SimpleTail::RollBack(const StepCall&) {
  SPIRITLEVEL_CHECK(false, "a barrier leaves nothing to roll back");
}

}  // namespace spiritlevel
