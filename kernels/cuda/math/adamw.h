// AdamW and its arithmetic inverse: formulas as in kernels/cpu/optimizer.h and
// kernels/cpu/model/undo_adamw.h, in one pass together with the rounding of what is stored.
#pragma once

#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/math/groups.h"

namespace spiritlevel::cuda {

template <typename Number>
struct AdamWNumbers {
  Number rate, beta1, beta2, epsilon, weight_decay, correct_m, correct_v;
};

template <typename Number>
AdamWNumbers<Number> NumbersOf(const AdamWStep& step) {
  const auto count = static_cast<double>(step.step);
  const double correct_m = 1 / (1 - std::pow(double{step.beta1}, count));
  const double correct_v = 1 / (1 - std::pow(double{step.beta2}, count));
  return {Number{step.rate},
          Number{step.beta1},
          Number{step.beta2},
          Number{step.epsilon},
          Number{step.weight_decay},
          static_cast<Number>(correct_m),
          static_cast<Number>(correct_v)};
}

struct AdamWOne {
  AdamWNumbers<float> o;

  SPIRITLEVEL_HOST_DEVICE void operator()(float g, float* p, float* m, float* v) const {
    *m = o.beta1 * *m + (1 - o.beta1) * g;
    *v = o.beta2 * *v + (1 - o.beta2) * g * g;
    const float direction = o.correct_m * *m / (std::sqrt(o.correct_v * *v) + o.epsilon);
    *p -= o.rate * (o.weight_decay * *p + direction);
  }
};

// In double: what is lost is what the step has rounded, and no more.
struct AdamWUndoOne {
  AdamWNumbers<double> o;
  bool first_step;  // before which the moments were 0

  SPIRITLEVEL_HOST_DEVICE void operator()(float gradient, float* p, float* m, float* v) const {
    const double g = static_cast<double>(gradient);
    const double new_m = static_cast<double>(*m);
    const double new_v = static_cast<double>(*v);
    const double direction = o.correct_m * new_m / (std::sqrt(o.correct_v * new_v) + o.epsilon);
    const double keep = 1 - o.rate * o.weight_decay;
    const double old_v = (new_v - (1 - o.beta2) * g * g) / o.beta2;
    *p = static_cast<float>((static_cast<double>(*p) + o.rate * direction) / keep);
    *m = first_step ? 0.0f : static_cast<float>((new_m - (1 - o.beta1) * g) / o.beta1);
    // The way of std::max(0.0, old_v), NaN included.
    *v = first_step ? 0.0f : static_cast<float>(0.0 < old_v ? old_v : 0.0);
  }
};

// `T`: what is stored beside; not looked at unless `has_stored`.
template <typename One, typename T>
struct AdamWGroup {
  One one;
  float clip;
  Rows<const float> gradient;
  Rows<float> exact;
  Rows<float> first_moment;
  Rows<float> second_moment;
  Rows<T> stored;
  bool has_stored;

  SPIRITLEVEL_HOST_DEVICE void operator()(int64_t row, int64_t col, int count) const {
    const Pack grad = gradient.Load(row, col, count);
    Pack p = exact.Load(row, col, count);
    Pack m = first_moment.Load(row, col, count);
    Pack v = second_moment.Load(row, col, count);
    for (int k = 0; k < kGroup; ++k) one(clip * grad.at[k], &p.at[k], &m.at[k], &v.at[k]);
    exact.Store(row, col, count, p);
    first_moment.Store(row, col, count, m);
    second_moment.Store(row, col, count, v);
    if (has_stored) stored.Store(row, col, count, p);
  }
};

template <typename One, typename Grid>
void RunAdamW(const One& one, const AdamWStep& step, const Grid& grid) {
  const View& stored = step.stored.empty() ? step.exact : step.stored;
  WithStorage(stored.type, [&](auto element) {
    using T = decltype(element);
    const AdamWGroup<One, T> work{one,
                                  step.clip,
                                  RowsOf<const float>(step.gradient),
                                  RowsOf<float>(step.exact),
                                  RowsOf<float>(step.first_moment),
                                  RowsOf<float>(step.second_moment),
                                  RowsOf<T>(stored),
                                  !step.stored.empty()};
    RunGroups(work,
              ExtentOf(step.gradient, step.exact, step.first_moment, step.second_moment, stored),
              grid);
  });
}

template <typename Grid>
void Compute(const AdamWStep& call, const Grid& grid) {
  RunAdamW(AdamWOne{NumbersOf<float>(call)}, call, grid);
}

template <typename Grid>
void Compute(const AdamWUndo& call, const Grid& grid) {
  RunAdamW(AdamWUndoOne{NumbersOf<double>(call.step), call.step.step == 1}, call.step, grid);
}

}  // namespace spiritlevel::cuda
