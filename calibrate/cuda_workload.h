// Work that is posted on a stream of a GPU, again and again. Internal to calibrate/.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "calibrate/cuda_handles.h"
#include "calibrate/cuda_work.h"
#include "calibrate/device.h"
#include "kernels/cuda/product_plans.h"

namespace spiritlevel {

// What is shared by all workloads of a device.
struct CudaShop {
  cuda::Layer* layer = nullptr;
  int device = 0;
  Bytes l2 = 0;
  cuda::ProductPlans* plans = nullptr;
  CudaFiller* filler = nullptr;
  void* workspace = nullptr;  // of products; one stream at a time
};

class CudaWorkload : public Workload {
 public:
  CudaWorkload(cuda::Stream stream, int launches) : stream_(stream), launches_(launches) {}

  // Where its time is read: it begins and ends there, whatever other streams it uses.
  cuda::Stream stream() const { return stream_; }
  int launches() const { return launches_; }  // that one Run() posts
  virtual bool is_product() const { return false; }

  TimeNs usual_ns = 0;  // of a run, when it was last timed; 0: not yet

 private:
  cuda::Stream stream_;
  int launches_;
};

// On its sets of operands in turn. The algorithms of its products are tuned. Throws GpuError.
std::unique_ptr<CudaWorkload> MakeCudaWorkload(const CudaShop& shop, cuda::Stream stream,
                                               CudaWork work);

// Each Run() calls `post`.
std::unique_ptr<CudaWorkload> MakeCudaWorkload(cuda::Stream stream, int launches,
                                               std::function<void()> post);

// What an op costs on the device beside its kernel: the smallest kernel there is, an event recorded
// behind it, and a wait for that.
std::unique_ptr<CudaWorkload> MakeEmptyCudaWorkload(const CudaShop& shop, cuda::Stream stream);

// Buffers of one size, used in turn so that they are cold.
class CudaBuffers {
 public:
  CudaBuffers(const CudaShop& shop, Bytes bytes);
  CudaBuffers(cuda::Layer* layer, int device, Bytes bytes, Bytes l2);

  std::byte* Next();
  Bytes bytes() const { return bytes_; }

 private:
  Bytes bytes_;
  Bytes stride_;
  Bytes count_;
  Bytes at_ = 0;
  CudaMemory memory_;
};

}  // namespace spiritlevel
