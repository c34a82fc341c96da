// As much of cuBLASLt as is used, each function found when it is first called; see lazy_library.h.
#include <cublasLt.h>

#include <string>

#include "kernels/cuda/lazy_library.h"

namespace {

spiritlevel::cuda::LazyLibrary& CublasLt() {
  static spiritlevel::cuda::LazyLibrary library(
      "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR), SPIRITLEVEL_CUBLASLT_FILE);
  return library;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static const auto call = CublasLt().Find("cublasLtCreate", &cublasLtCreate);
  return call(handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  static const auto call = CublasLt().Find("cublasLtDestroy", &cublasLtDestroy);
  return call(handle);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  static const auto call = CublasLt().Find("cublasLtGetStatusString", &cublasLtGetStatusString);
  return call(status);
}

size_t cublasLtGetVersion() {
  static const auto call = CublasLt().Find("cublasLtGetVersion", &cublasLtGetVersion);
  return call();
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  static const auto call =
      CublasLt().Find("cublasLtMatrixLayoutInit_internal", &cublasLtMatrixLayoutInit_internal);
  return call(layout, size, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  static const auto call =
      CublasLt().Find("cublasLtMatmulDescInit_internal", &cublasLtMatmulDescInit_internal);
  return call(operation, size, compute, scale);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  static const auto call =
      CublasLt().Find("cublasLtMatmulDescSetAttribute", &cublasLtMatmulDescSetAttribute);
  return call(operation, attribute, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  static const auto call = CublasLt().Find("cublasLtMatmulPreferenceInit_internal",
                                           &cublasLtMatmulPreferenceInit_internal);
  return call(preference, size);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  static const auto call = CublasLt().Find("cublasLtMatmulPreferenceSetAttribute",
                                           &cublasLtMatmulPreferenceSetAttribute);
  return call(preference, attribute, value, size);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  static const auto call =
      CublasLt().Find("cublasLtMatmulAlgoGetHeuristic", &cublasLtMatmulAlgoGetHeuristic);
  return call(handle, operation, a, b, c, d, preference, most, results, found);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  static const auto call = CublasLt().Find("cublasLtMatmul", &cublasLtMatmul);
  return call(handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
              algorithm, workspace, workspace_bytes, stream);
}

}  // extern "C"
