// As much of cuDNN as is used, each function found when it is first called; see lazy_library.h.
#include <cudnn_graph.h>

#include <string>

#include "kernels/cuda/lazy_library.h"

namespace {

spiritlevel::cuda::LazyLibrary& Cudnn() {
  static spiritlevel::cuda::LazyLibrary library("libcudnn.so." + std::to_string(CUDNN_MAJOR),
                                                SPIRITLEVEL_CUDNN_FILE);
  return library;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static const auto call = Cudnn().Find("cudnnCreate", &cudnnCreate);
  return call(handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  static const auto call = Cudnn().Find("cudnnDestroy", &cudnnDestroy);
  return call(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  static const auto call = Cudnn().Find("cudnnSetStream", &cudnnSetStream);
  return call(handle, stream);
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  static const auto call = Cudnn().Find("cudnnGetErrorString", &cudnnGetErrorString);
  return call(status);
}

void cudnnGetLastErrorString(char* message, size_t size) {
  static const auto call = Cudnn().Find("cudnnGetLastErrorString", &cudnnGetLastErrorString);
  call(message, size);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  static const auto call =
      Cudnn().Find("cudnnBackendCreateDescriptor", &cudnnBackendCreateDescriptor);
  return call(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  static const auto call =
      Cudnn().Find("cudnnBackendDestroyDescriptor", &cudnnBackendDestroyDescriptor);
  return call(descriptor);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  static const auto call = Cudnn().Find("cudnnBackendFinalize", &cudnnBackendFinalize);
  return call(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  static const auto call = Cudnn().Find("cudnnBackendSetAttribute", &cudnnBackendSetAttribute);
  return call(descriptor, name, type, count, values);
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* values) {
  static const auto call = Cudnn().Find("cudnnBackendGetAttribute", &cudnnBackendGetAttribute);
  return call(descriptor, name, type, requested, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  static const auto call = Cudnn().Find("cudnnBackendExecute", &cudnnBackendExecute);
  return call(handle, plan, pack);
}

}  // extern "C"
