#include "kernels/cuda/cuda_launch.h"

#include <variant>

#include "base/check.h"
#include "kernels/cuda/launch.h"

namespace spiritlevel::cuda {
namespace {

struct Launcher {
  cudaStream_t stream;

  void operator()(const Product&) const { SPIRITLEVEL_CHECK(false, "a product is not launched"); }
  void operator()(const Fill& call) const { LaunchFill(call, stream); }
  void operator()(const Convert& call) const { LaunchConvert(call, stream); }
  void operator()(const Add& call) const { LaunchAdd(call, stream); }
  void operator()(const AddBias& call) const { LaunchAddBias(call, stream); }
  void operator()(const ColumnSums& call) const { LaunchColumnSums(call, stream); }
  void operator()(const SumOfSquares& call) const { LaunchSumOfSquares(call, stream); }
  void operator()(const SwigluForward& call) const { LaunchSwigluForward(call, stream); }
  void operator()(const SwigluBackward& call) const { LaunchSwigluBackward(call, stream); }
  void operator()(const GeluForward& call) const { LaunchGeluForward(call, stream); }
  void operator()(const GeluBackward& call) const { LaunchGeluBackward(call, stream); }
  void operator()(const Rotate& call) const { LaunchRotate(call, stream); }
  void operator()(const Dropout& call) const { LaunchDropout(call, stream); }
  void operator()(const RmsNormForward& call) const { LaunchRmsNormForward(call, stream); }
  void operator()(const RmsNormInputGrad& call) const { LaunchRmsNormInputGrad(call, stream); }
  void operator()(const RmsNormWeightGrad& call) const { LaunchRmsNormWeightGrad(call, stream); }
  void operator()(const LayerNormForward& call) const { LaunchLayerNormForward(call, stream); }
  void operator()(const LayerNormInputGrad& call) const { LaunchLayerNormInputGrad(call, stream); }
  void operator()(const LayerNormWeightGrad& call) const {
    LaunchLayerNormWeightGrad(call, stream);
  }
  void operator()(const EmbeddingForward& call) const { LaunchEmbeddingForward(call, stream); }
  void operator()(const EmbeddingWeightGrad& call) const {
    LaunchEmbeddingWeightGrad(call, stream);
  }
  void operator()(const CrossEntropyForward& call) const {
    LaunchCrossEntropyForward(call, stream);
  }
  void operator()(const CrossEntropyBackward& call) const {
    LaunchCrossEntropyBackward(call, stream);
  }
  void operator()(const AttentionForward& call) const { LaunchAttentionForward(call, stream); }
  void operator()(const AttentionBackward& call) const { LaunchAttentionBackward(call, stream); }
  void operator()(const AdamWStep& call) const { LaunchAdamWStep(call, stream); }
  void operator()(const AdamWUndo& call) const { LaunchAdamWUndo(call, stream); }
};

}  // namespace

void LaunchCall(const Call& call, cudaStream_t stream) { std::visit(Launcher{stream}, call); }

}  // namespace spiritlevel::cuda
