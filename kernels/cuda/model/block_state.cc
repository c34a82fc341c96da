#include "kernels/cuda/model/block_state.h"

#include <initializer_list>

namespace spiritlevel::cuda {
namespace {

Bytes SumOf(std::initializer_list<const DeviceTensor*> tensors) {
  Bytes sum = 0;
  for (const DeviceTensor* tensor : tensors) sum += tensor->bytes();
  return sum;
}

Bytes Of(const NormActivation& a) { return SumOf({&a.x, &a.statistics, &a.y}); }
Bytes Of(const NormWeightState& s) { return SumOf({&s.x, &s.statistics, &s.dy}); }
Bytes Of(const LinearWeightState& s) { return SumOf({&s.x, &s.dy}); }

struct Counter {
  Bytes operator()(const EmbeddingActivation& a) const { return a.tokens.bytes(); }
  Bytes operator()(const LayerActivation& a) const {
    return Of(a.attention.norm) + Of(a.mlp.norm) +
           SumOf({&a.attention.qkv, &a.attention.out, &a.attention.log_sum_exp, &a.mlp.up,
                  &a.mlp.act});
  }
  Bytes operator()(const HeadActivation& a) const {
    return Of(a.norm) + SumOf({&a.targets, &a.logits, &a.log_sum_exp});
  }
  Bytes operator()(const std::monostate&) const { return 0; }
  Bytes operator()(const EmbeddingWeightState& s) const { return SumOf({&s.tokens, &s.dx}); }
  Bytes operator()(const LayerWeightState& s) const {
    return Of(s.attention_norm) + Of(s.qkv) + Of(s.attention_output) + Of(s.mlp_norm) + Of(s.up) +
           Of(s.down);
  }
  Bytes operator()(const HeadWeightState& s) const { return Of(s.norm) + Of(s.head); }
};

}  // namespace

Bytes BytesOf(const BlockActivation& block) { return std::visit(Counter{}, block); }
Bytes BytesOf(const BlockWeightState& block) { return std::visit(Counter{}, block); }

}  // namespace spiritlevel::cuda
