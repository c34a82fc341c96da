#include "kernels/cpu/blas.h"

#include <cblas.h>

#include <limits>

namespace spiritlevel::cpu {
namespace {

blasint Int(int64_t n) {
  SPIRITLEVEL_CHECK(n <= std::numeric_limits<blasint>::max(), "BLAS can count this far");
  return static_cast<blasint>(n);
}

}  // namespace

void Gemm(float alpha, ConstMatrix a, Transpose ta, ConstMatrix b, Transpose tb, float beta,
          Matrix c) {
  const bool flip_a = ta == Transpose::kYes;
  const bool flip_b = tb == Transpose::kYes;
  const int64_t inner = flip_a ? a.rows() : a.cols();
  SPIRITLEVEL_CHECK((flip_a ? a.cols() : a.rows()) == c.rows(), "A has the rows of C");
  SPIRITLEVEL_CHECK((flip_b ? b.rows() : b.cols()) == c.cols(), "B has the columns of C");
  SPIRITLEVEL_CHECK((flip_b ? b.cols() : b.rows()) == inner, "A and B share their inner size");
  if (c.rows() == 0 || c.cols() == 0) return;
  cblas_sgemm(CblasRowMajor, flip_a ? CblasTrans : CblasNoTrans, flip_b ? CblasTrans : CblasNoTrans,
              Int(c.rows()), Int(c.cols()), Int(inner), alpha, a.data(), Int(a.stride()), b.data(),
              Int(b.stride()), beta, c.data(), Int(c.stride()));
}

void UseOneBlasThread() { openblas_set_num_threads(1); }

std::string BlasDescription() {
  return std::string(openblas_get_config()) + " (kernels for " + openblas_get_corename() + ")";
}

}  // namespace spiritlevel::cpu
