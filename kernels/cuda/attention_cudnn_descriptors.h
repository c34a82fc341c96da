// Descriptors of cuDNN's backend, and those of an AttentionGraph. Only in builds with cuDNN.
#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/cuda/attention_graph.h"

namespace spiritlevel::cuda {

// Throws GpuError unless all is well, with cuDNN's own words.
void Check(cudnnStatus_t status, std::string_view call);

struct DestroyDescriptor {
  void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
};

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return owner_.get(); }

  template <typename T>
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    SetSome(name, type, 1, &value);
  }
  template <typename T>
  void SetAll(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              const std::vector<T>& values) {
    SetSome(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  void SetDescriptor(cudnnBackendAttributeName_t name, const Descriptor& other);
  void SetSome(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void* values);
  void Finalize();

 private:
  std::unique_ptr<void, DestroyDescriptor> owner_;
};

// What operations there are of a graph. Tensor i has i + 1 for its unique id.
struct GraphDescriptors {
  std::vector<Descriptor> tensors;
  std::vector<Descriptor> kinds;  // of matrix products, pointwise operations and reductions
  std::vector<Descriptor> operations;
};
GraphDescriptors DescriptorsOf(const AttentionGraph& graph);

inline int64_t UniqueId(size_t tensor) { return static_cast<int64_t>(tensor) + 1; }

}  // namespace spiritlevel::cuda
