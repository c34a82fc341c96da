// Layer: everything that the host asks of CUDA, cuBLASLt and NCCL, as one interface.
//
// Host-side logic (orders of streams and events, lifetimes of buffers, algorithm caches, error
// paths) is written against it, so that all of that is tested on machines without a GPU: the tests'
// fake records calls, runs kernels on the host in any order that streams and events permit, and can
// fail any call. CudaLayer (cuda_layer.h) passes everything on.
//
// As in CUDA:
//   - work on one stream runs in order, on different streams in any order;
//   - Wait() for an event that was never recorded is no wait; it waits for the last Record() that
//     was called before it;
//   - most calls return before the device is done, and a later call may report what went wrong;
//     behind such an error the device is of no use to this process.
//
// Every function throws GpuError. One thread at a time may use the streams of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/units.h"
#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

enum class GpuErrorKind : uint8_t {
  kNoDevice,  // none, or no driver
  kOutOfMemory,
  kUnsupported,    // this device, driver or library cannot do it
  kAsynchronous,   // an earlier kernel or copy failed; the device is lost to this process
  kCommunication,  // NCCL: a peer is gone, or the communicator was aborted
  kTimeout,        // what was waited for did not come
  kOther,
};

class GpuError : public std::runtime_error {
 public:
  // `call`: what was called, in the library's own words ("cudaMalloc of 4096 bytes").
  GpuError(GpuErrorKind kind, const std::string& call, const std::string& what);
  GpuErrorKind kind() const { return kind_; }

 private:
  GpuErrorKind kind_;
};

// Handles; 0 is none. Of one layer, and not used behind its end.
enum class Stream : uint64_t {};
enum class Event : uint64_t {};
enum class Communicator : uint64_t {};
// SMs of one device that streams are kept to; 0: all of them.
enum class Partition : uint64_t {};

struct DeviceInfo {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  Bytes memory = 0;
  Bytes l2 = 0;
  std::string pci;  // "0000:17:00.0": whether two processes mean the same device

  bool has_fp8() const { return major > 8 || (major == 8 && minor == 9); }
};

// What may change while something is measured, and what then makes it doubtful. Only read.
struct DeviceState {
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;
  int temperature = 0;  // degrees Celsius
  bool throttled = false;
};

struct LibraryVersions {
  int driver = 0;  // as CUDA counts: 13000
  int runtime = 0;
  int64_t cublas_lt = 0;
  int nccl = 0;
  int64_t cudnn = 0;  // 0: this build has none
};

struct FreeMemory {
  Bytes free = 0;
  Bytes total = 0;
};

// --- Products

// One of the ways in which cuBLASLt can compute a product. `opaque` is its own.
struct ProductAlgorithm {
  std::vector<std::byte> opaque;
  Bytes workspace = 0;
};

// --- Communication

struct CommunicatorId {
  std::vector<std::byte> bytes;  // made by one rank, given to all
};

enum class Reduction : uint8_t { kSum, kMax };

class Layer {
 public:
  virtual ~Layer() = default;

  // --- Devices
  virtual int NumDevices() = 0;  // 0 where there is none, or no driver
  virtual DeviceInfo Describe(int device) = 0;
  virtual DeviceState State(int device) = 0;
  virtual LibraryVersions Versions() = 0;
  virtual FreeMemory Memory(int device) = 0;

  // Disjoint sets of the device's SMs, as equal as its granularity allows (green contexts).
  virtual std::vector<Partition> Split(int device, int parts) = 0;
  virtual int Multiprocessors(int device, Partition partition) = 0;

  // --- Memory, plainly allocated
  virtual void* Allocate(int device, Bytes bytes) = 0;
  virtual void Free(int device, void* memory) noexcept = 0;
  // Of the host, where the device's copies run at full speed.
  virtual void* AllocateHost(Bytes bytes) = 0;
  virtual void FreeHost(void* memory) noexcept = 0;

  // --- Streams and events
  virtual Stream MakeStream(int device, Partition partition, bool high_priority) = 0;
  virtual Event MakeEvent(int device, bool timed) = 0;
  virtual void Destroy(Stream stream) noexcept = 0;
  virtual void Destroy(Event event) noexcept = 0;
  virtual void Record(Event event, Stream stream) = 0;
  virtual void Wait(Stream stream, Event event) = 0;
  virtual bool IsDone(Event event) = 0;  // true as well if it was never recorded
  virtual void Synchronize(Stream stream) = 0;
  // Both timed, recorded and done, of one device.
  virtual TimeNs Between(Event first, Event second) = 0;

  // --- Work
  virtual void Launch(Stream stream, const Call& call) = 0;  // all but Product
  // Best first; those that need no more than `workspace` bytes.
  virtual std::vector<ProductAlgorithm> FindAlgorithms(int device, const Product& product,
                                                       Bytes workspace, int most) = 0;
  virtual void Multiply(Stream stream, const Product& product, const ProductAlgorithm& algorithm,
                        void* workspace) = 0;
  // Between any two of host and devices that this process has.
  virtual void Copy(Stream stream, void* to, const void* from, Bytes bytes) = 0;

  // --- Communication. What is between BeginGroup() and EndGroup() is posted as one.
  virtual CommunicatorId MakeCommunicatorId() = 0;
  virtual Communicator MakeCommunicator(int device, const CommunicatorId& id, int size,
                                        int rank) = 0;
  virtual void Destroy(Communicator communicator) noexcept = 0;
  virtual void BeginGroup() = 0;
  virtual void EndGroup() = 0;
  virtual void Send(Communicator communicator, Stream stream, const void* data, Bytes bytes,
                    int peer) = 0;
  virtual void Receive(Communicator communicator, Stream stream, void* data, Bytes bytes,
                       int peer) = 0;
  virtual void AllReduce(Communicator communicator, Stream stream, View data,
                         Reduction reduction) = 0;
  virtual void ReduceScatter(Communicator communicator, Stream stream, View from, View to) = 0;
  virtual void AllGather(Communicator communicator, Stream stream, const void* from, void* to,
                         Bytes bytes_of_each) = 0;
  virtual void AllToAll(Communicator communicator, Stream stream, const void* from, void* to,
                        Bytes bytes_for_each) = 0;
  // What went wrong since; none if all is well so far.
  virtual std::optional<std::string> Failure(Communicator communicator) = 0;
  // Ends what it has under way, so that streams that wait for a lost peer come free.
  virtual void Abort(Communicator communicator) noexcept = 0;
};

// Null in a build without the toolkit. Otherwise one that passes everything on, also where there is
// no device: NumDevices() is 0 then.
std::unique_ptr<Layer> MakeCudaLayer();

// Why there is no device to use, in words; empty where there is one.
std::string WhyNoDevice(Layer* layer);

}  // namespace spiritlevel::cuda
