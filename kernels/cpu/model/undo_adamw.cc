#include "kernels/cpu/model/undo_adamw.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace spiritlevel::cpu {
namespace {

struct Inverse {
  double rate, beta1, beta2, epsilon, keep, correct_m, correct_v;
};

// In double: what is lost is what the step has rounded, and no more.
void UndoOne(const Inverse& o, double g, float* p, float* m, float* v) {
  const double new_m = static_cast<double>(*m);
  const double new_v = static_cast<double>(*v);
  const double direction = o.correct_m * new_m / (std::sqrt(o.correct_v * new_v) + o.epsilon);
  *p = static_cast<float>((static_cast<double>(*p) + o.rate * direction) / o.keep);
  *m = static_cast<float>((new_m - (1 - o.beta1) * g) / o.beta1);
  *v = static_cast<float>(std::max(0.0, (new_v - (1 - o.beta2) * g * g) / o.beta2));
}

}  // namespace

void UndoAdamWStep(const AdamW& options, int64_t step, float clip, std::span<const float> grads,
                   std::span<float> parameters, std::span<float> first_moment,
                   std::span<float> second_moment) {
  const size_t size = grads.size();
  SPIRITLEVEL_CHECK(step >= 1, "steps count from 1");
  SPIRITLEVEL_CHECK(
      parameters.size() == size && first_moment.size() == size && second_moment.size() == size,
      "each parameter has a gradient and two moments");
  const double keep = 1 - double{options.rate} * double{options.weight_decay};
  SPIRITLEVEL_CHECK(keep > 0 && options.beta1 > 0 && options.beta2 > 0, "the step has an inverse");
  const auto count = static_cast<double>(step);
  const Inverse inverse{.rate = double{options.rate},
                        .beta1 = double{options.beta1},
                        .beta2 = double{options.beta2},
                        .epsilon = double{options.epsilon},
                        .keep = keep,
                        .correct_m = 1 / (1 - std::pow(double{options.beta1}, count)),
                        .correct_v = 1 / (1 - std::pow(double{options.beta2}, count))};
  for (size_t i = 0; i < size; ++i) {
    UndoOne(inverse, static_cast<double>(clip * grads[i]), &parameters[i], &first_moment[i],
            &second_moment[i]);
  }
  if (step == 1) {
    std::ranges::fill(first_moment, 0.0f);
    std::ranges::fill(second_moment, 0.0f);
  }
}

}  // namespace spiritlevel::cpu
