// Attention by cuDNN's fused kernels, where it has one for a call. Only in builds with the toolkit.
//
//   CudnnAttention cudnn(most_workspace);
//   if (const auto reason = cudnn.WhyNot(call)) {
//     LaunchAttentionForward(call, stream);         // launch.h; *reason says why, in words
//   } else {
//     cudnn.Launch(call, workspace, stream);        // cudnn.Workspace(call) bytes
//   }
//
// It is loaded when first asked for; see lazy_library.h. Plans are kept by shapes and strides, of
// each device: the first question about a shape compiles a kernel, which can take a second. Only
// engines that cuDNN does not call nondeterministic are taken. See attention_graph.h for what
// backward needs in workspace.
//
// One thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

struct AttentionGraph;

// What cuDNN says against descriptors of the graph's tensors and operations. Nothing where all are
// right; that needs no device, and says nothing about whether there is a kernel.
std::optional<std::string> CudnnObjection(const AttentionGraph& graph);

class CudnnAttention {
 public:
  // Plans that need more are not taken.
  explicit CudnnAttention(Bytes most_workspace);
  ~CudnnAttention();

  // On the current device. Nothing where it can.
  std::optional<std::string> WhyNot(const AttentionForward& call);
  std::optional<std::string> WhyNot(const AttentionBackward& call);

  // Of calls that it can.
  Bytes Workspace(const AttentionForward& call);
  Bytes Workspace(const AttentionBackward& call);
  void Launch(const AttentionForward& call, void* workspace, cudaStream_t stream);
  void Launch(const AttentionBackward& call, void* workspace, cudaStream_t stream);

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace spiritlevel::cuda
