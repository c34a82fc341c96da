#include "kernels/cuda/cuda_layer.h"

#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "base/check.h"
#include "kernels/cuda/cuda_errors.h"
#include "kernels/cuda/cuda_launch.h"

#ifdef SPIRITLEVEL_HAS_CUDNN
#include <cudnn_version.h>
#else
#define CUDNN_VERSION 0
#endif

namespace spiritlevel::cuda {

// Handles are the addresses of these.
struct CudaLayer::StreamState {
  int device = 0;
  cudaStream_t stream = nullptr;
  Unsettled unsettled;
};
struct CudaLayer::EventState {
  int device = 0;
  cudaEvent_t event = nullptr;
};

namespace {

// Nothing of ours keeps a stream busy for as long.
constexpr std::chrono::minutes kPatience{10};

template <typename State, typename Handle>
State* Pointer(Handle handle) {
  return reinterpret_cast<State*>(static_cast<uint64_t>(handle));
}

template <typename Handle>
Handle HandleOf(const void* state) {
  return static_cast<Handle>(reinterpret_cast<uint64_t>(state));
}

// Of a library that is not there.
template <typename Function>
auto OrZero(Function version) -> decltype(version()) {
  try {
    return version();
  } catch (const GpuError&) {
    return 0;
  }
}

void UseDevice(int device) { Check(cudaSetDevice(device), "cudaSetDevice"); }

}  // namespace

CudaLayer::StreamState& CudaLayer::Find(Stream stream) {
  SPIRITLEVEL_CHECK(stream != Stream{}, "there is a stream");
  return *Pointer<StreamState>(stream);
}

CudaLayer::EventState& CudaLayer::Find(Event event) {
  SPIRITLEVEL_CHECK(event != Event{}, "there is an event");
  return *Pointer<EventState>(event);
}

CudaLayer::StreamState& CudaLayer::Use(Stream stream) {
  StreamState& state = Find(stream);
  UseDevice(state.device);
  communication_.Settle(&state.unsettled);
  return state;
}

// --- Devices

int CudaLayer::NumDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count;
  cudaGetLastError();
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorStubLibrary) {
    return 0;
  }
  Check(error, "cudaGetDeviceCount");
  return 0;
}

DeviceInfo CudaLayer::Describe(int device) {
  cudaDeviceProp properties{};
  Check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  char pci[32] = "";
  Check(cudaDeviceGetPCIBusId(pci, sizeof(pci), device), "cudaDeviceGetPCIBusId");
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory = static_cast<Bytes>(properties.totalGlobalMem),
          .l2 = properties.l2CacheSize,
          .pci = pci};
}

DeviceState CudaLayer::State(int device) {
  char pci[32] = "";
  Check(cudaDeviceGetPCIBusId(pci, sizeof(pci), device), "cudaDeviceGetPCIBusId");
  return states_.Read(pci);
}

LibraryVersions CudaLayer::Versions() {
  LibraryVersions versions;
  if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
  if (cudaRuntimeGetVersion(&versions.runtime) != cudaSuccess) versions.runtime = 0;
  cudaGetLastError();
  versions.cublas_lt = OrZero([] { return static_cast<int64_t>(cublasLtGetVersion()); });
  versions.nccl = OrZero(&CudaCommunication::Version);
  versions.cudnn = CUDNN_VERSION;
  return versions;
}

FreeMemory CudaLayer::Memory(int device) {
  UseDevice(device);
  size_t free = 0;
  size_t total = 0;
  Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {static_cast<Bytes>(free), static_cast<Bytes>(total)};
}

std::vector<Partition> CudaLayer::Split(int device, int parts) {
  UseDevice(device);
  Check(cudaFree(nullptr), "cudaFree");  // makes the context that the parts are parts of
  const std::lock_guard lock(mutex_);
  std::vector<Partition> partitions;
  for (const CudaPartition* part : green_.Split(device, parts)) {
    partitions.push_back(HandleOf<Partition>(part));
  }
  return partitions;
}

int CudaLayer::Multiprocessors(int device, Partition partition) {
  if (partition != Partition{}) return Pointer<CudaPartition>(partition)->multiprocessors;
  int count = 0;
  Check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return count;
}

// --- Memory

void* CudaLayer::Allocate(int device, Bytes bytes) {
  UseDevice(device);
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc", bytes);
  return memory;
}

void CudaLayer::Free(int device, void* memory) noexcept {
  if (cudaSetDevice(device) == cudaSuccess) cudaFree(memory);
  cudaGetLastError();
}

void* CudaLayer::AllocateHost(Bytes bytes) {
  void* memory = nullptr;
  Check(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable), "cudaHostAlloc",
        bytes);
  return memory;
}

void CudaLayer::FreeHost(void* memory) noexcept {
  cudaFreeHost(memory);
  cudaGetLastError();
}

// --- Streams and events

Stream CudaLayer::MakeStream(int device, Partition partition, bool high_priority) {
  UseDevice(device);
  int least = 0;
  int greatest = 0;
  Check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  const int priority = high_priority ? greatest : least;
  auto state = std::make_unique<StreamState>();
  state->device = device;
  if (partition == Partition{}) {
    Check(cudaStreamCreateWithPriority(&state->stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
  } else {
    const CudaPartition& part = *Pointer<CudaPartition>(partition);
    SPIRITLEVEL_CHECK(part.device == device, "a stream is on its partition's device");
    state->stream = GreenContexts::MakeStream(part, priority);
  }
  return HandleOf<Stream>(state.release());
}

Event CudaLayer::MakeEvent(int device, bool timed) {
  UseDevice(device);
  auto state = std::make_unique<EventState>();
  state->device = device;
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
  Check(cudaEventCreateWithFlags(&state->event, flags), "cudaEventCreateWithFlags");
  return HandleOf<Event>(state.release());
}

void CudaLayer::Destroy(Stream stream) noexcept {
  const std::unique_ptr<StreamState> state(Pointer<StreamState>(stream));
  if (state == nullptr) return;
  if (cudaSetDevice(state->device) == cudaSuccess) cudaStreamDestroy(state->stream);
  cudaGetLastError();
}

void CudaLayer::Destroy(Event event) noexcept {
  const std::unique_ptr<EventState> state(Pointer<EventState>(event));
  if (state == nullptr) return;
  cudaEventDestroy(state->event);
  cudaGetLastError();
}

void CudaLayer::Record(Event event, Stream stream) {
  Check(cudaEventRecord(Find(event).event, Use(stream).stream), "cudaEventRecord");
}

void CudaLayer::Wait(Stream stream, Event event) {
  Check(cudaStreamWaitEvent(Use(stream).stream, Find(event).event, cudaEventWaitDefault),
        "cudaStreamWaitEvent");
}

bool CudaLayer::IsDone(Event event) {
  UseDevice(Find(event).device);
  const cudaError_t error = cudaEventQuery(Find(event).event);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // so that it is not taken for a launch's
    return false;
  }
  Check(error, "cudaEventQuery");
  return true;
}

// Asks again and again, where cudaStreamSynchronize() would wait for a peer that is gone.
void CudaLayer::Synchronize(Stream stream) {
  const StreamState& state = Use(stream);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (int64_t turn = 1;; ++turn) {
    const cudaError_t error = cudaStreamQuery(state.stream);
    if (error != cudaErrorNotReady) {
      Check(error, "cudaStreamQuery");
      return;
    }
    cudaGetLastError();
    if (turn % 256 != 0) continue;
    if (const auto failure = communication_.FailureOn(state.device)) {
      throw GpuError(GpuErrorKind::kCommunication, "waiting for a stream", *failure);
    }
    if (std::chrono::steady_clock::now() > end) {
      throw GpuError(GpuErrorKind::kTimeout, "waiting for a stream",
                     "it was not done within " + std::to_string(kPatience.count()) + " min");
    }
    std::this_thread::yield();
  }
}

TimeNs CudaLayer::Between(Event first, Event second) {
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, Find(first).event, Find(second).event),
        "cudaEventElapsedTime");
  return std::llround(static_cast<double>(milliseconds) * 1e6);
}

// --- Work

void CudaLayer::Launch(Stream stream, const Call& call) {
  CheckCall(call);
  LaunchCall(call, Use(stream).stream);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) Check(error, "launch of " + cuda::Describe(call));
}

std::vector<ProductAlgorithm> CudaLayer::FindAlgorithms(int device, const Product& product,
                                                        Bytes workspace, int most) {
  CheckCall(product);
  UseDevice(device);
  return products_.Find(device, product, workspace, most);
}

void CudaLayer::Multiply(Stream stream, const Product& product, const ProductAlgorithm& algorithm,
                         void* workspace) {
  CheckCall(product);
  const StreamState& state = Use(stream);
  products_.Multiply(state.device, state.stream, product, algorithm, workspace);
}

void CudaLayer::Copy(Stream stream, void* to, const void* from, Bytes bytes) {
  if (bytes == 0) return;
  Check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, Use(stream).stream),
      "cudaMemcpyAsync", bytes);
}

// --- Communication

CudaCommunication::Place CudaLayer::PlaceOf(Stream stream) {
  StreamState& state = Find(stream);
  UseDevice(state.device);
  return {state.stream, &state.unsettled};
}

CommunicatorId CudaLayer::MakeCommunicatorId() { return communication_.MakeId(); }

Communicator CudaLayer::MakeCommunicator(int device, const CommunicatorId& id, int size, int rank) {
  SPIRITLEVEL_CHECK(size >= 1 && rank >= 0 && rank < size, "a communicator has this rank");
  UseDevice(device);
  return communication_.Make(device, id, size, rank);
}

void CudaLayer::Destroy(Communicator communicator) noexcept {
  communication_.Destroy(communicator);
}

void CudaLayer::BeginGroup() { communication_.BeginGroup(); }

void CudaLayer::EndGroup() { communication_.EndGroup(); }

void CudaLayer::Send(Communicator communicator, Stream stream, const void* data, Bytes bytes,
                     int peer) {
  communication_.Send(communicator, PlaceOf(stream),
                      {.from = data, .to = nullptr, .bytes = bytes, .peer = peer});
}

void CudaLayer::Receive(Communicator communicator, Stream stream, void* data, Bytes bytes,
                        int peer) {
  communication_.Receive(communicator, PlaceOf(stream),
                         {.from = nullptr, .to = data, .bytes = bytes, .peer = peer});
}

void CudaLayer::AllReduce(Communicator communicator, Stream stream, View data,
                          Reduction reduction) {
  communication_.AllReduce(communicator, PlaceOf(stream), data, reduction);
}

void CudaLayer::ReduceScatter(Communicator communicator, Stream stream, View from, View to) {
  communication_.ReduceScatter(communicator, PlaceOf(stream), from, to);
}

void CudaLayer::AllGather(Communicator communicator, Stream stream, const void* from, void* to,
                          Bytes bytes_of_each) {
  communication_.AllGather(communicator, PlaceOf(stream),
                           {.from = from, .to = to, .bytes = bytes_of_each});
}

void CudaLayer::AllToAll(Communicator communicator, Stream stream, const void* from, void* to,
                         Bytes bytes_for_each) {
  communication_.AllToAll(communicator, PlaceOf(stream),
                          {.from = from, .to = to, .bytes = bytes_for_each});
}

std::optional<std::string> CudaLayer::Failure(Communicator communicator) {
  return communication_.Failure(communicator);
}

void CudaLayer::Abort(Communicator communicator) noexcept { communication_.Abort(communicator); }

std::unique_ptr<Layer> MakeCudaLayer() { return std::make_unique<CudaLayer>(); }

}  // namespace spiritlevel::cuda
