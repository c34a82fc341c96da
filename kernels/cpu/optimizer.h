// AdamW (Loshchilov and Hutter 2019, algorithm 2) with clipping by the global norm.
//
//   g = clip * grad
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   p = p - rate (weight_decay p + (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon))
#pragma once

#include <cstdint>
#include <span>

namespace spiritlevel::cpu {

struct AdamW {
  float rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.01f;
};

// One parameter's share of the squared norm, in double: there may be 10^9 of them.
double SumOfSquares(std::span<const float> grads);

// 1 where the norm is within `most`, else what brings it there (Pascanu et al. 2013, algorithm 1).
float ClipCoefficient(double norm, double most);

// `step` counts from 1. All four have one size; the gradients are not changed.
void AdamWStep(const AdamW& options, int64_t step, float clip, std::span<const float> grads,
               std::span<float> parameters, std::span<float> first_moment,
               std::span<float> second_moment);

}  // namespace spiritlevel::cpu
