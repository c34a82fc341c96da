#include "kernels/cuda/cuda_partitions.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "kernels/cuda/cuda_errors.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {
namespace {

constexpr unsigned kSince = 12050;  // the version that has all of these

template <typename Function>
Function Load(const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, kSince, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) {
    cudaGetLastError();
    throw GpuError(GpuErrorKind::kUnsupported, name,
                   "this driver has no green contexts; one for CUDA 12.5 or later has");
  }
  return reinterpret_cast<Function>(address);
}

struct DriverCalls {
  PFN_cuDeviceGet_v2000 device = Load<PFN_cuDeviceGet_v2000>("cuDeviceGet");
  PFN_cuDeviceGetDevResource_v12040 resource =
      Load<PFN_cuDeviceGetDevResource_v12040>("cuDeviceGetDevResource");
  PFN_cuDevSmResourceSplitByCount_v12040 split =
      Load<PFN_cuDevSmResourceSplitByCount_v12040>("cuDevSmResourceSplitByCount");
  PFN_cuDevResourceGenerateDesc_v12040 describe =
      Load<PFN_cuDevResourceGenerateDesc_v12040>("cuDevResourceGenerateDesc");
  PFN_cuGreenCtxCreate_v12040 create = Load<PFN_cuGreenCtxCreate_v12040>("cuGreenCtxCreate");
  PFN_cuGreenCtxDestroy_v12040 destroy = Load<PFN_cuGreenCtxDestroy_v12040>("cuGreenCtxDestroy");
  PFN_cuGreenCtxStreamCreate_v12050 stream =
      Load<PFN_cuGreenCtxStreamCreate_v12050>("cuGreenCtxStreamCreate");
};

const DriverCalls& Driver() {
  static const DriverCalls calls;  // throws again each time that it cannot be had
  return calls;
}

// The largest size of `parts` equal ones that the driver's granularity allows.
unsigned SizeOfPart(const CUdevSmResource& all, int parts) {
  const unsigned least = std::max(1u, all.minSmPartitionSize);
  const unsigned unit = std::max(1u, all.smCoscheduledAlignment);
  const unsigned each = all.smCount / static_cast<unsigned>(parts) / unit * unit;
  if (each < least) {
    throw GpuError(
        GpuErrorKind::kUnsupported,
        "a split of " + std::to_string(all.smCount) + " SMs into " + std::to_string(parts),
        "a part has at least " + std::to_string(least) + ", and a multiple of " +
            std::to_string(unit));
  }
  return each;
}

}  // namespace

GreenContexts::~GreenContexts() {
  for (const auto& partition : partitions_) {
    if (partition->context != nullptr) Driver().destroy(partition->context);
  }
}

std::vector<CudaPartition*> GreenContexts::Split(int device, int parts) {
  SPIRITLEVEL_CHECK(parts >= 1, "a device is split into parts");
  const DriverCalls& driver = Driver();
  CUdevice handle = 0;
  Check(driver.device(&handle, device), "cuDeviceGet");
  CUdevResource all{};
  Check(driver.resource(handle, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  const unsigned each = SizeOfPart(all.sm, parts);
  std::vector<CUdevResource> resources(static_cast<size_t>(parts));
  auto groups = static_cast<unsigned>(parts);
  CUdevResource rest{};
  Check(driver.split(resources.data(), &groups, &all, &rest, 0, each),
        "cuDevSmResourceSplitByCount");
  if (groups < static_cast<unsigned>(parts)) {
    throw GpuError(GpuErrorKind::kUnsupported, "cuDevSmResourceSplitByCount",
                   "of " + std::to_string(parts) + " parts of " + std::to_string(each) +
                       " SMs it makes " + std::to_string(groups));
  }
  std::vector<CudaPartition*> made;
  for (CUdevResource& resource : resources) {
    CUdevResourceDesc description{};
    Check(driver.describe(&description, &resource, 1), "cuDevResourceGenerateDesc");
    auto partition = std::make_unique<CudaPartition>();
    partition->device = device;
    partition->multiprocessors = static_cast<int>(resource.sm.smCount);
    Check(driver.create(&partition->context, description, handle, CU_GREEN_CTX_DEFAULT_STREAM),
          "cuGreenCtxCreate");
    made.push_back(partition.get());
    partitions_.push_back(std::move(partition));
  }
  return made;
}

cudaStream_t GreenContexts::MakeStream(const CudaPartition& partition, int priority) {
  CUstream stream = nullptr;
  Check(Driver().stream(&stream, partition.context, CU_STREAM_NON_BLOCKING, priority),
        "cuGreenCtxStreamCreate");
  return stream;
}

}  // namespace spiritlevel::cuda
