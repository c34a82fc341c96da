#include "tests/kernels/cuda/fake_operands.h"

#include "kernels/cuda/call_views.h"

namespace spiritlevel::cuda {

std::vector<FakeOperand> OperandsOf(const Call& call) {
  std::vector<FakeOperand> operands;
  for (const NamedView& named : ViewsOf(call)) {
    const View& view = *named.view;
    if (view.empty() || view.size() == 0) continue;
    const int64_t elements = (view.rows - 1) * view.stride + view.cols;
    operands.push_back({view.data, elements * SizeOf(view.type), named.written});
  }
  if (const auto* product = std::get_if<Product>(&call)) {
    for (const float* scale : {product->scale_a, product->scale_b}) {
      if (scale != nullptr) operands.push_back({scale, Bytes{sizeof(float)}, false});
    }
  }
  return operands;
}

}  // namespace spiritlevel::cuda
