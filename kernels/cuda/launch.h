// Launches of calls on a stream. Only in builds with the toolkit.
//
// A call has passed CheckCall(), and its views are of memory that the current device can reach. The
// launch itself may fail; cudaGetLastError() says so, and is for the caller to ask.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

void LaunchFill(const Fill& call, cudaStream_t stream);
void LaunchConvert(const Convert& call, cudaStream_t stream);
void LaunchAdd(const Add& call, cudaStream_t stream);
void LaunchAddBias(const AddBias& call, cudaStream_t stream);
void LaunchColumnSums(const ColumnSums& call, cudaStream_t stream);
void LaunchSumOfSquares(const SumOfSquares& call, cudaStream_t stream);
void LaunchSwigluForward(const SwigluForward& call, cudaStream_t stream);
void LaunchSwigluBackward(const SwigluBackward& call, cudaStream_t stream);
void LaunchGeluForward(const GeluForward& call, cudaStream_t stream);
void LaunchGeluBackward(const GeluBackward& call, cudaStream_t stream);
void LaunchRotate(const Rotate& call, cudaStream_t stream);
void LaunchDropout(const Dropout& call, cudaStream_t stream);
void LaunchRmsNormForward(const RmsNormForward& call, cudaStream_t stream);
void LaunchRmsNormInputGrad(const RmsNormInputGrad& call, cudaStream_t stream);
void LaunchRmsNormWeightGrad(const RmsNormWeightGrad& call, cudaStream_t stream);
void LaunchLayerNormForward(const LayerNormForward& call, cudaStream_t stream);
void LaunchLayerNormInputGrad(const LayerNormInputGrad& call, cudaStream_t stream);
void LaunchLayerNormWeightGrad(const LayerNormWeightGrad& call, cudaStream_t stream);
void LaunchEmbeddingForward(const EmbeddingForward& call, cudaStream_t stream);
void LaunchEmbeddingWeightGrad(const EmbeddingWeightGrad& call, cudaStream_t stream);
void LaunchCrossEntropyForward(const CrossEntropyForward& call, cudaStream_t stream);
void LaunchCrossEntropyBackward(const CrossEntropyBackward& call, cudaStream_t stream);
void LaunchAdamWStep(const AdamWStep& call, cudaStream_t stream);
void LaunchAdamWUndo(const AdamWUndo& call, cudaStream_t stream);

// In attention*.cu.
void LaunchAttentionForward(const AttentionForward& call, cudaStream_t stream);
void LaunchAttentionBackward(const AttentionBackward& call, cudaStream_t stream);

}  // namespace spiritlevel::cuda
