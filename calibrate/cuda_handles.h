// What a cuda::Layer hands out, each ended with its owner, also by an error. Internal to
// calibrate/.
#pragma once

#include <utility>

#include "kernels/cuda/layer.h"

namespace spiritlevel {

// Move-only; `Handle` is a stream, an event or a communicator.
template <typename Handle>
class CudaOwned {
 public:
  CudaOwned() = default;
  CudaOwned(cuda::Layer* layer, Handle handle) : layer_(layer), handle_(handle) {}
  CudaOwned(CudaOwned&& other) noexcept
      : layer_(std::exchange(other.layer_, nullptr)), handle_(other.handle_) {}
  CudaOwned& operator=(CudaOwned&& other) noexcept {
    std::swap(layer_, other.layer_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaOwned() {
    if (layer_ != nullptr) layer_->Destroy(handle_);
  }

  Handle get() const { return handle_; }

 private:
  cuda::Layer* layer_ = nullptr;
  Handle handle_{};
};

inline CudaOwned<cuda::Stream> OwnStream(cuda::Layer* layer, int device,
                                         cuda::Partition partition = {}, bool urgent = false) {
  return {layer, layer->MakeStream(device, partition, urgent)};
}

inline CudaOwned<cuda::Event> OwnTimedEvent(cuda::Layer* layer, int device) {
  return {layer, layer->MakeEvent(device, /*timed=*/true)};
}

// Of a device, or of the host where copies run at full speed.
class CudaMemory {
 public:
  CudaMemory() = default;
  static CudaMemory OnDevice(cuda::Layer* layer, int device, Bytes bytes) {
    return {layer, device, layer->Allocate(device, bytes)};
  }
  static CudaMemory OnHost(cuda::Layer* layer, Bytes bytes) {
    return {layer, kHost, layer->AllocateHost(bytes)};
  }
  CudaMemory(CudaMemory&& other) noexcept
      : layer_(std::exchange(other.layer_, nullptr)), device_(other.device_), data_(other.data_) {}
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    std::swap(layer_, other.layer_);
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~CudaMemory() {
    if (layer_ == nullptr) return;
    if (device_ == kHost) {
      layer_->FreeHost(data_);
    } else {
      layer_->Free(device_, data_);
    }
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  static constexpr int kHost = -1;
  CudaMemory(cuda::Layer* layer, int device, void* data)
      : layer_(layer), device_(device), data_(data) {}

  cuda::Layer* layer_ = nullptr;
  int device_ = 0;
  void* data_ = nullptr;
};

}  // namespace spiritlevel
