// Matrix products, by OpenBLAS.
#pragma once

#include <string>

#include "kernels/cpu/matrix.h"

namespace spiritlevel::cpu {

enum class Transpose { kNo, kYes };

// C = alpha op(A) op(B) + beta C. With beta 0, C is not read and may hold anything.
void Gemm(float alpha, ConstMatrix a, Transpose ta, ConstMatrix b, Transpose tb, float beta,
          Matrix c);

// A rank is one thread. OpenBLAS otherwise spreads a product over all cores, and ranks would take
// them from each other. Of the whole process; call it before the first product.
void UseOneBlasThread();

// OpenBLAS' own words on its version, options and the core it chose kernels for.
std::string BlasDescription();

}  // namespace spiritlevel::cpu
