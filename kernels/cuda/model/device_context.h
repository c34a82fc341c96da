// DeviceContext: what a rank's work on a device is posted with.
//
// All passes of a stage go to one stream, in the order in which they are called. Other streams
// (messages) are ordered against it by their owner's events.
#pragma once

#include "kernels/cuda/buffer_pool.h"
#include "kernels/cuda/layer.h"
#include "kernels/cuda/model/host_staging.h"
#include "kernels/cuda/product_plans.h"

namespace spiritlevel::cuda {

// Nothing here is owned; all of it outlives what is made with it.
struct DeviceContext {
  Layer* layer = nullptr;
  BufferPool* pool = nullptr;
  ProductPlans* plans = nullptr;
  HostStaging* staging = nullptr;
  Stream compute{};
  void* product_workspace = nullptr;  // plans->settings().workspace bytes; of `compute` alone

  void Post(const Call& call) const { layer->Launch(compute, call); }
  void Multiply(const Product& product) const {
    layer->Multiply(compute, product, plans->For(product), product_workspace);
  }
};

}  // namespace spiritlevel::cuda
