#include "kernels/cuda/cuda_errors.h"

#include <string>

namespace spiritlevel::cuda {
GpuErrorKind KindOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return GpuErrorKind::kOutOfMemory;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
      return GpuErrorKind::kNoDevice;
    case cudaErrorNotSupported:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
      return GpuErrorKind::kUnsupported;
    // Sticky: every call behind one of these gives the same, until the process ends.
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorContained:
      return GpuErrorKind::kAsynchronous;
    case cudaErrorTimeout:
      return GpuErrorKind::kTimeout;
    default:
      return GpuErrorKind::kOther;
  }
}

void Check(cudaError_t error, std::string_view call, Bytes bytes) {
  if (error == cudaSuccess) [[likely]] {
    return;
  }
  cudaGetLastError();  // one that is not sticky would be told again by a later call
  std::string words(call);
  if (bytes >= 0) words += " of " + std::to_string(bytes) + " bytes";
  std::string what = cudaGetErrorString(error);
  if (KindOf(error) == GpuErrorKind::kAsynchronous) {
    what += " (in this or an earlier call; the device is of no more use to this process)";
  }
  throw GpuError(KindOf(error), words, what + " [" + std::string(cudaGetErrorName(error)) + "]");
}

void Check(CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) [[likely]] {
    return;
  }
  // The runtime's numbers are the driver's, for all that both have.
  const auto error = static_cast<cudaError_t>(result);
  throw GpuError(KindOf(error), std::string(call), cudaGetErrorString(error));
}

void Check(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]] {
    return;
  }
  GpuErrorKind kind = GpuErrorKind::kOther;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) kind = GpuErrorKind::kOutOfMemory;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH) {
    kind = GpuErrorKind::kUnsupported;
  }
  if (status == CUBLAS_STATUS_EXECUTION_FAILED) kind = GpuErrorKind::kAsynchronous;
  throw GpuError(kind, std::string(call), cublasLtGetStatusString(status));
}

}  // namespace spiritlevel::cuda
