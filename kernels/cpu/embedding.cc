#include "kernels/cpu/embedding.h"

namespace spiritlevel::cpu {
namespace {

void CheckToken(int32_t token, int64_t vocabulary) {
  SPIRITLEVEL_CHECK(token >= 0 && token < vocabulary, "a token is in the vocabulary");
}

// By a loop of ours: a C library's copy of a few kilobytes begins in ways that change with their
// number, and cold rows of 1 or 2 KiB took a third longer a byte than others.
void CopyRow(const float* from, int64_t count, float* to) {
  for (int64_t j = 0; j < count; ++j) to[j] = from[j];
}

}  // namespace

void EmbeddingForward(std::span<const int32_t> tokens, ConstMatrix table, Matrix x) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(tokens.size()) == x.rows() && table.cols() == x.cols(),
                    "one row of the table for each token");
  for (int64_t i = 0; i < x.rows(); ++i) {
    CheckToken(tokens[i], table.rows());
    CopyRow(table.row(tokens[i]), x.cols(), x.row(i));
  }
}

void EmbeddingWeightGrad(std::span<const int32_t> tokens, ConstMatrix dx, Matrix dtable) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(tokens.size()) == dx.rows() && dtable.cols() == dx.cols(),
                    "one row of the table for each token");
  for (int64_t i = 0; i < dx.rows(); ++i) {
    CheckToken(tokens[i], dtable.rows());
    const float* const grad = dx.row(i);
    float* const out = dtable.row(tokens[i]);
    for (int64_t j = 0; j < dx.cols(); ++j) out[j] += grad[j];
  }
}

}  // namespace spiritlevel::cpu
