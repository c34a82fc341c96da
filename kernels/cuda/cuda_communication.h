// NCCL behind Layer's communication. Only in builds with the toolkit; in one without NCCL each call
// says so (no_nccl.cc).
//
// Communicators are non-blocking: a call of NCCL comes back while it still connects to a peer,
// which may never come. What was posted is not yet on its stream then, so nothing else may be put
// there before it is: Settle() waits for that, not for ever.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

struct CudaCommunicator;  // of one rank; in nccl_communication.cc

// Communicators whose last group may not be on a stream yet.
using Unsettled = std::vector<std::shared_ptr<CudaCommunicator>>;

class CudaCommunication {
 public:
  // Where a call posts: the stream, and who is to be asked before anything else is put on it.
  struct Place {
    cudaStream_t stream = nullptr;
    Unsettled* unsettled = nullptr;
  };
  struct Part {
    const void* from = nullptr;
    void* to = nullptr;
    Bytes bytes = 0;
    int peer = 0;
  };

  CudaCommunication();
  ~CudaCommunication();
  CudaCommunication(const CudaCommunication&) = delete;
  CudaCommunication& operator=(const CudaCommunication&) = delete;

  static int Version();  // 0: this build has none

  CommunicatorId MakeId();
  // The device is the current one.
  Communicator Make(int device, const CommunicatorId& id, int size, int rank);
  void Destroy(Communicator communicator) noexcept;
  void BeginGroup();
  void EndGroup();
  void Send(Communicator communicator, Place place, const Part& part);
  void Receive(Communicator communicator, Place place, const Part& part);
  void AllReduce(Communicator communicator, Place place, View data, Reduction reduction);
  void ReduceScatter(Communicator communicator, Place place, View from, View to);
  void AllGather(Communicator communicator, Place place, const Part& part);
  void AllToAll(Communicator communicator, Place place, const Part& part);
  std::optional<std::string> Failure(Communicator communicator);
  void Abort(Communicator communicator) noexcept;

  // Until all of them have put on their streams what was posted. Throws GpuError: kCommunication,
  // or kTimeout where a peer does not come; the communicator is aborted then.
  void Settle(Unsettled* unsettled);
  // The first failure of a communicator on a device.
  std::optional<std::string> FailureOn(int device);
  int device_of(Communicator communicator) const;

 private:
  struct Group;

  CudaCommunicator& Find(Communicator communicator) const;
  void Post(Communicator communicator, Place place, std::string_view call,
            const std::function<int(CudaCommunicator&)>& post);
  Group& OpenGroup();

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<CudaCommunicator>> communicators_;
};

}  // namespace spiritlevel::cuda
