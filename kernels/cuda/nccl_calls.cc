// As much of NCCL as is used, each function found when it is first called; see lazy_library.h.
#include <nccl.h>

#include <string>

#include "kernels/cuda/lazy_library.h"

namespace {

spiritlevel::cuda::LazyLibrary& Nccl() {
  static spiritlevel::cuda::LazyLibrary library("libnccl.so." + std::to_string(NCCL_MAJOR),
                                                SPIRITLEVEL_NCCL_FILE);
  return library;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  static const auto call = Nccl().Find("ncclGetVersion", &ncclGetVersion);
  return call(version);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static const auto call = Nccl().Find("ncclGetUniqueId", &ncclGetUniqueId);
  return call(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static const auto call = Nccl().Find("ncclCommInitRankConfig", &ncclCommInitRankConfig);
  return call(comm, size, id, rank, config);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static const auto call = Nccl().Find("ncclCommAbort", &ncclCommAbort);
  return call(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  static const auto call = Nccl().Find("ncclCommGetAsyncError", &ncclCommGetAsyncError);
  return call(comm, error);
}

ncclResult_t ncclGroupStart() {
  static const auto call = Nccl().Find("ncclGroupStart", &ncclGroupStart);
  return call();
}

ncclResult_t ncclGroupEnd() {
  static const auto call = Nccl().Find("ncclGroupEnd", &ncclGroupEnd);
  return call();
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  static const auto call = Nccl().Find("ncclSend", &ncclSend);
  return call(data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  static const auto call = Nccl().Find("ncclRecv", &ncclRecv);
  return call(data, count, type, peer, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  static const auto call = Nccl().Find("ncclAllReduce", &ncclAllReduce);
  return call(from, to, count, type, reduction, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  static const auto call = Nccl().Find("ncclReduceScatter", &ncclReduceScatter);
  return call(from, to, count, type, reduction, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  static const auto call = Nccl().Find("ncclAllGather", &ncclAllGather);
  return call(from, to, count, type, comm, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const auto call = Nccl().Find("ncclGetErrorString", &ncclGetErrorString);
  return call(result);
}

const char* ncclGetLastError(ncclComm_t comm) {
  static const auto call = Nccl().Find("ncclGetLastError", &ncclGetLastError);
  return call(comm);
}

}  // extern "C"
