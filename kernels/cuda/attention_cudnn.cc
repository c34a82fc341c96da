#include "kernels/cuda/attention_cudnn.h"

#include <algorithm>
#include <list>
#include <map>

#include "base/check.h"
#include "kernels/cuda/attention_cudnn_descriptors.h"
#include "kernels/cuda/cuda_errors.h"
#include "kernels/cuda/math/attention_arguments.h"

namespace spiritlevel::cuda {
namespace {

struct DestroyHandle {
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
};
using Handle = std::unique_ptr<cudnnContext, DestroyHandle>;

// A way to compute a graph, or why there is none.
struct Plan {
  AttentionGraph graph;
  GraphDescriptors descriptors;
  std::vector<Descriptor> others;      // that the plan is made from
  std::optional<Descriptor> chosen{};  // the plan itself
  Bytes workspace = 0;
  std::string why_not{};
};

std::vector<Descriptor> ConfigurationsOf(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  heuristic.Finalize();
  int64_t count = 0;
  Check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "cudnnBackendGetAttribute of the heuristic's results");
  std::vector<Descriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configurations.back().get());
  }
  Check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()),
        "cudnnBackendGetAttribute of the heuristic's results");
  configurations.erase(configurations.begin() + count, configurations.end());
  return configurations;
}

bool IsDeterministic(const Descriptor& configuration) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  Check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
        "cudnnBackendGetAttribute of the engine");
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  Check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                 notes.data()),
        "cudnnBackendGetAttribute of the engine's notes");
  notes.resize(static_cast<size_t>(count));
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ==
         notes.end();
}

Bytes WorkspaceOf(const Descriptor& plan) {
  int64_t bytes = 0;
  int64_t count = 0;
  Check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &bytes),
        "cudnnBackendGetAttribute of the workspace");
  return bytes;
}

// Takes the first configuration that may be taken; else says why the last one may not.
void Choose(cudnnHandle_t handle, std::vector<Descriptor> configurations, Bytes most_workspace,
            Plan* plan) {
  for (Descriptor& configuration : configurations) {
    try {
      if (!IsDeterministic(configuration)) {
        plan->why_not = "cuDNN's engine for it is not deterministic";
        continue;
      }
      Descriptor candidate(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      candidate.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      candidate.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      candidate.Finalize();
      const Bytes workspace = WorkspaceOf(candidate);
      if (workspace > most_workspace) {
        plan->why_not = "cuDNN's plan for it needs " + std::to_string(workspace) +
                        " bytes of workspace, and " + std::to_string(most_workspace) + " are there";
        continue;
      }
      plan->workspace = workspace;
      plan->others.push_back(std::move(configuration));
      plan->chosen = std::move(candidate);
      plan->why_not.clear();
      return;
    } catch (const GpuError& error) {
      plan->why_not = error.what();
    }
  }
}

Plan MakePlan(cudnnHandle_t handle, AttentionGraph graph, Bytes most_workspace) {
  Plan plan{std::move(graph), {}, {}};
  try {
    plan.descriptors = DescriptorsOf(plan.graph);
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const Descriptor& d : plan.descriptors.operations) operations.push_back(d.get());
    plan.others.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    Descriptor& all = plan.others.back();
    all.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    all.SetAll(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    all.Finalize();
    plan.why_not = "cuDNN has no engine for it";
    Choose(handle, ConfigurationsOf(all, CUDNN_HEUR_MODE_A), most_workspace, &plan);
  } catch (const GpuError& error) {
    plan.why_not = error.what();
  }
  return plan;
}

// Before cuDNN is asked at all.
template <typename CallOf>
std::optional<std::string> Unsuitable(const CallOf& call) {
  if (call.q.type != ElementType::kBFloat16) return "cuDNN's attention is of 16-bit numbers";
  if (!FitsTensorCores(call)) return "rows of heads do not begin at multiples of 16 bytes";
  if (call.shape.sequence < 2) return "cuDNN does not take sequences of one token";
  return std::nullopt;
}

}  // namespace

class CudnnAttention::Plans {
 public:
  explicit Plans(Bytes most_workspace) : most_workspace_(most_workspace) {}

  template <typename CallOf>
  std::optional<std::string> WhyNot(const CallOf& call) {
    if (auto reason = Unsuitable(call)) return reason;
    try {
      const Plan& plan = Of(call);
      return plan.chosen ? std::nullopt : std::optional(plan.why_not);
    } catch (const GpuError& error) {  // no library, or no device
      return error.what();
    }
  }

  template <typename CallOf>
  const Plan& Of(const CallOf& call) {
    OfDevice& device = Current();
    AttentionGraph graph = GraphOf(call);
    for (const Plan& plan : device.plans) {
      if (plan.graph == graph) return plan;
    }
    device.plans.push_back(MakePlan(device.handle.get(), std::move(graph), most_workspace_));
    return device.plans.back();
  }

  template <typename CallOf>
  void Launch(const CallOf& call, void* workspace, cudaStream_t stream) {
    const Plan& plan = Of(call);
    SPIRITLEVEL_CHECK(plan.chosen.has_value(), "cuDNN can compute the call");
    std::vector<int64_t> ids;
    std::vector<void*> pointers;
    for (size_t i = 0; i < plan.graph.tensors.size(); ++i) {
      const GraphTensor& tensor = plan.graph.tensors[i];
      if (tensor.is_virtual()) continue;
      ids.push_back(UniqueId(i));
      // Of a constant, which it reads at once.
      pointers.push_back(tensor.role == GraphRole::kConstant ? const_cast<float*>(&tensor.value)
                                                             : DataOf(call, tensor.role));
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.SetAll(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack.SetAll(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.Finalize();
    cudnnHandle_t handle = Current().handle.get();
    Check(cudnnSetStream(handle, stream), "cudnnSetStream");
    Check(cudnnBackendExecute(handle, plan.chosen->get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  struct OfDevice {
    Handle handle;
    std::list<Plan> plans;  // stay where they are
  };

  OfDevice& Current() {
    int device = 0;
    Check(cudaGetDevice(&device), "cudaGetDevice");
    OfDevice& of_device = devices_[device];
    if (of_device.handle == nullptr) {
      cudnnHandle_t handle = nullptr;
      Check(cudnnCreate(&handle), "cudnnCreate");
      of_device.handle.reset(handle);
    }
    return of_device;
  }

  Bytes most_workspace_;
  std::map<int, OfDevice> devices_;
};

std::optional<std::string> CudnnObjection(const AttentionGraph& graph) {
  try {
    DescriptorsOf(graph);
    return std::nullopt;
  } catch (const GpuError& error) {
    return error.what();
  }
}

CudnnAttention::CudnnAttention(Bytes most_workspace)
    : plans_(std::make_unique<Plans>(most_workspace)) {}
CudnnAttention::~CudnnAttention() = default;

std::optional<std::string> CudnnAttention::WhyNot(const AttentionForward& call) {
  return plans_->WhyNot(call);
}
std::optional<std::string> CudnnAttention::WhyNot(const AttentionBackward& call) {
  return plans_->WhyNot(call);
}
Bytes CudnnAttention::Workspace(const AttentionForward& call) { return plans_->Of(call).workspace; }
Bytes CudnnAttention::Workspace(const AttentionBackward& call) {
  return plans_->Of(call).workspace;
}
void CudnnAttention::Launch(const AttentionForward& call, void* workspace, cudaStream_t stream) {
  plans_->Launch(call, workspace, stream);
}
void CudnnAttention::Launch(const AttentionBackward& call, void* workspace, cudaStream_t stream) {
  plans_->Launch(call, workspace, stream);
}

}  // namespace spiritlevel::cuda
