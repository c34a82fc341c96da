#include "kernels/cuda/host_kernels.h"

#include "kernels/cuda/attention_host.h"
#include "kernels/cuda/host_kernels_product.h"
#include "kernels/cuda/math/activation.h"
#include "kernels/cuda/math/adamw.h"
#include "kernels/cuda/math/column_sums.h"
#include "kernels/cuda/math/dropout.h"
#include "kernels/cuda/math/elementwise.h"
#include "kernels/cuda/math/embedding.h"
#include "kernels/cuda/math/loss.h"
#include "kernels/cuda/math/norm.h"
#include "kernels/cuda/math/rotation.h"
#include "kernels/cuda/math/sum_of_squares.h"

namespace spiritlevel::cuda {
namespace {

struct HostRun {
  Turns turns;

  void operator()(const Product& call) const { RunProductOnHost(call); }
  void operator()(const AttentionForward& call) const { RunAttentionOnHost(call); }
  void operator()(const AttentionBackward& call) const { RunAttentionOnHost(call); }
  template <typename Other>
  void operator()(const Other& call) const {
    Compute(call, HostGrid(turns));
  }
};

}  // namespace

void RunOnHost(const Call& call, Turns turns) {
  CheckCall(call);
  std::visit(HostRun{turns}, call);
}

}  // namespace spiritlevel::cuda
