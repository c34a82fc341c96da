// CudaGroup: ranks on GPUs that exchange by NCCL, of which this process has one or several.
//
//   CudaGroup two(layer, &timer, {0, 1}, l2);           // both ranks here, one a device
//   two.Measure(TransferKind::kAllReduce, Bytes{1} << 20);
//
//   // One rank of many; every process does the same at the same time, and `id` is one rank's:
//   CudaGroup all(layer, &timer, {0}, l2,
//                 {.id = id, .size = 16, .first_rank = 3, .link = LinkClass::kOtherNode});
//
// How often something is sent depends on its size alone, never on a clock, so that all processes
// post the same. Where a peer is lost, or does not come, the timer ends the communicators and
// throws. Internal to calibrate/.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "calibrate/cuda_timer.h"
#include "models/device_profile.h"

namespace spiritlevel {

class CudaGroup {
 public:
  struct Place {
    cuda::CommunicatorId id;
    int size = 0;
    int first_rank = 0;  // of those in this process, which follow each other
    LinkClass link = LinkClass::kSameNode;
  };

  // The first device is the timer's. One device alone exchanges with itself.
  CudaGroup(cuda::Layer* layer, CudaTimer* timer, std::vector<int> devices, Bytes l2);
  CudaGroup(cuda::Layer* layer, CudaTimer* timer, std::vector<int> devices, Bytes l2, Place place);
  ~CudaGroup();
  CudaGroup(const CudaGroup&) = delete;
  CudaGroup& operator=(const CudaGroup&) = delete;

  int size() const { return place_.size; }
  LinkClass link() const { return place_.link; }

  // Between all ranks; a message there and back between the first two, or one way from the only one
  // to itself. The bytes are those of TransferFit's units, rounded up so that they can be dealt
  // out.
  std::unique_ptr<CudaWorkload> Prepare(TransferKind kind, Bytes bytes);
  Bytes RoundedUp(TransferKind kind, Bytes bytes) const;

  // A message's one way.
  Samples Measure(TransferKind kind, Bytes bytes);

 private:
  struct Member {
    int device = 0;
    int rank = 0;
    CudaOwned<cuda::Stream> stream{};
    CudaOwned<cuda::Communicator> communicator{};
  };
  class Exchange;

  static Place AllHere(cuda::Layer* layer, const std::vector<int>& devices);

  cuda::Layer* layer_;
  CudaTimer* timer_;
  Bytes l2_;
  Place place_;
  std::vector<Member> members_;
};

}  // namespace spiritlevel
