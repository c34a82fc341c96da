#include "kernels/cpu/optimizer.h"

#include <cmath>

#include "base/check.h"

namespace spiritlevel::cpu {

double SumOfSquares(std::span<const float> grads) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < grads.size(); ++i) {
    sum += static_cast<double>(grads[i]) * static_cast<double>(grads[i]);
  }
  return sum;
}

float ClipCoefficient(double norm, double most) {
  return norm <= most ? 1.0f : static_cast<float>(most / norm);
}

void AdamWStep(const AdamW& options, int64_t step, float clip, std::span<const float> grads,
               std::span<float> parameters, std::span<float> first_moment,
               std::span<float> second_moment) {
  const size_t size = grads.size();
  SPIRITLEVEL_CHECK(step >= 1, "steps count from 1");
  SPIRITLEVEL_CHECK(
      parameters.size() == size && first_moment.size() == size && second_moment.size() == size,
      "each parameter has a gradient and two moments");
  const auto count = static_cast<double>(step);
  const auto correct_m = static_cast<float>(1 / (1 - std::pow(double{options.beta1}, count)));
  const auto correct_v = static_cast<float>(1 / (1 - std::pow(double{options.beta2}, count)));
  const float* const grad = grads.data();
  float* const p = parameters.data();
  float* const m = first_moment.data();
  float* const v = second_moment.data();
  const AdamW o = options;
  // The four arrays are apart from each other; only the caller can know, and here the compiler
  // must.
#pragma omp simd
  for (size_t i = 0; i < size; ++i) {
    const float g = clip * grad[i];
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
    const float direction = correct_m * m[i] / (std::sqrt(correct_v * v[i]) + o.epsilon);
    p[i] -= o.rate * (o.weight_decay * p[i] + direction);
  }
}

}  // namespace spiritlevel::cpu
