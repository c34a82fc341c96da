// In a build without cuDNN's headers.
#include <string>

#include "base/check.h"
#include "kernels/cuda/attention_cudnn.h"

namespace spiritlevel::cuda {
namespace {

constexpr const char* kReason = "this build has no cuDNN";

}  // namespace

class CudnnAttention::Plans {};

std::optional<std::string> CudnnObjection(const AttentionGraph& /*graph*/) { return kReason; }

CudnnAttention::CudnnAttention(Bytes /*most_workspace*/) {}
CudnnAttention::~CudnnAttention() = default;

std::optional<std::string> CudnnAttention::WhyNot(const AttentionForward& /*call*/) {
  return kReason;
}
std::optional<std::string> CudnnAttention::WhyNot(const AttentionBackward& /*call*/) {
  return kReason;
}
Bytes CudnnAttention::Workspace(const AttentionForward& /*call*/) {
  SPIRITLEVEL_CHECK(false, kReason);
}
Bytes CudnnAttention::Workspace(const AttentionBackward& /*call*/) {
  SPIRITLEVEL_CHECK(false, kReason);
}
void CudnnAttention::Launch(const AttentionForward& /*call*/, void* /*workspace*/,
                            cudaStream_t /*stream*/) {
  SPIRITLEVEL_CHECK(false, kReason);
}
void CudnnAttention::Launch(const AttentionBackward& /*call*/, void* /*workspace*/,
                            cudaStream_t /*stream*/) {
  SPIRITLEVEL_CHECK(false, kReason);
}

}  // namespace spiritlevel::cuda
