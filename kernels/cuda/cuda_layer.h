// CudaLayer: Layer by the CUDA runtime, green contexts, cuBLASLt and NCCL. Only in builds with the
// toolkit; everything else asks MakeCudaLayer() for it.
//
// Streams do not wait for the default stream, nor it for them. Only clocks and temperatures are
// read of the card's settings; none is ever set.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "kernels/cuda/cuda_communication.h"
#include "kernels/cuda/cuda_partitions.h"
#include "kernels/cuda/cuda_products.h"
#include "kernels/cuda/device_state.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

class CudaLayer : public Layer {
 public:
  int NumDevices() override;
  DeviceInfo Describe(int device) override;
  DeviceState State(int device) override;
  LibraryVersions Versions() override;
  FreeMemory Memory(int device) override;
  std::vector<Partition> Split(int device, int parts) override;
  int Multiprocessors(int device, Partition partition) override;
  void* Allocate(int device, Bytes bytes) override;
  void Free(int device, void* memory) noexcept override;
  void* AllocateHost(Bytes bytes) override;
  void FreeHost(void* memory) noexcept override;
  Stream MakeStream(int device, Partition partition, bool high_priority) override;
  Event MakeEvent(int device, bool timed) override;
  void Destroy(Stream stream) noexcept override;
  void Destroy(Event event) noexcept override;
  void Record(Event event, Stream stream) override;
  void Wait(Stream stream, Event event) override;
  bool IsDone(Event event) override;
  void Synchronize(Stream stream) override;
  TimeNs Between(Event first, Event second) override;
  void Launch(Stream stream, const Call& call) override;
  std::vector<ProductAlgorithm> FindAlgorithms(int device, const Product& product, Bytes workspace,
                                               int most) override;
  void Multiply(Stream stream, const Product& product, const ProductAlgorithm& algorithm,
                void* workspace) override;
  void Copy(Stream stream, void* to, const void* from, Bytes bytes) override;
  CommunicatorId MakeCommunicatorId() override;
  Communicator MakeCommunicator(int device, const CommunicatorId& id, int size, int rank) override;
  void Destroy(Communicator communicator) noexcept override;
  void BeginGroup() override;
  void EndGroup() override;
  void Send(Communicator communicator, Stream stream, const void* data, Bytes bytes,
            int peer) override;
  void Receive(Communicator communicator, Stream stream, void* data, Bytes bytes,
               int peer) override;
  void AllReduce(Communicator communicator, Stream stream, View data, Reduction reduction) override;
  void ReduceScatter(Communicator communicator, Stream stream, View from, View to) override;
  void AllGather(Communicator communicator, Stream stream, const void* from, void* to,
                 Bytes bytes_of_each) override;
  void AllToAll(Communicator communicator, Stream stream, const void* from, void* to,
                Bytes bytes_for_each) override;
  std::optional<std::string> Failure(Communicator communicator) override;
  void Abort(Communicator communicator) noexcept override;

 private:
  struct StreamState;
  struct EventState;

  static StreamState& Find(Stream stream);
  static EventState& Find(Event event);
  // Before anything is put on a stream: it is the current device's, and has what was posted before.
  StreamState& Use(Stream stream);
  CudaCommunication::Place PlaceOf(Stream stream);

  std::mutex mutex_;
  GreenContexts green_;
  CudaProducts products_;
  DeviceStates states_;
  CudaCommunication communication_;
};

}  // namespace spiritlevel::cuda
