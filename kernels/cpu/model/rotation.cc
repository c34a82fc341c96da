#include "kernels/cpu/model/rotation.h"

#include <cmath>

namespace spiritlevel::cpu {
namespace {

void RotateHead(const float* cosine, const float* sine, float sign, int64_t half, float* head) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosine[i] - sign * b * sine[i];
    head[i + half] = b * cosine[i] + sign * a * sine[i];
  }
}

}  // namespace

void FillRotation(double theta, Matrix table) {
  const int64_t sequence = table.rows() / 2;
  const int64_t half = table.cols();
  for (int64_t i = 0; i < half; ++i) {
    const double speed = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    for (int64_t position = 0; position < sequence; ++position) {
      const double angle = static_cast<double>(position) * speed;
      table(position, i) = static_cast<float>(std::cos(angle));
      table(sequence + position, i) = static_cast<float>(std::sin(angle));
    }
  }
}

void Rotate(ConstMatrix table, int64_t head_dim, Turn turn, Matrix x) {
  SPIRITLEVEL_CHECK(2 * table.cols() == head_dim && x.cols() % head_dim == 0,
                    "whole heads are rotated");
  const int64_t sequence = table.rows() / 2;
  const float sign = turn == Turn::kForward ? 1.0f : -1.0f;
  for (int64_t row = 0; row < x.rows(); ++row) {
    const int64_t position = row % sequence;
    for (int64_t head = 0; head < x.cols(); head += head_dim) {
      RotateHead(table.row(position), table.row(sequence + position), sign, table.cols(),
                 x.row(row) + head);
    }
  }
}

}  // namespace spiritlevel::cpu
