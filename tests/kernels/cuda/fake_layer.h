// FakeLayer: a Layer without a GPU. "Device" memory is the host's; kernels are run by RunOnHost(),
// products in plain loops; work is done when somebody waits for it, in an order drawn by a seed
// from all that CUDA would permit (fake_engine.h).
//
//   FakeLayer layer({.devices = 2, .seed = 7});
//   layer.FailCall("Allocate", 3, GpuErrorKind::kOutOfMemory);    // the third from now
//   ...
//   EXPECT_THAT(layer.misuses(), IsEmpty()) << layer.Log();
//
// What it finds by itself, in misuses(): two streams that touch the same memory with nothing that
// orders them, whichever way the seed let it come out; use of memory that is freed or was never
// taken; memory freed while posted work uses it; exchanges that do not fit together. Fresh memory
// holds NaN.
//
// Where work waits for what never comes, IsDone() stays false, and Synchronize(), which on a device
// would not return, throws kTimeout with what each stream waits for. With several threads the peer
// may be about to come: `patience` says how long to wait for it.
//
// Virtual time: each piece of work takes what `duration` says, on its stream, behind what it waits
// for and not before it was posted; the host's own calls take `call_cost` each. Streams do not slow
// each other down.
//
// All functions may be called from several threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/cuda/layer.h"
#include "tests/kernels/cuda/fake_engine.h"

namespace spiritlevel::cuda {

// A launch 1 us, a product 10 us, a copy and a transfer 2 us and 100 bytes a ns.
TimeNs DefaultFakeDuration(const FakeCost& cost);

struct FakeSettings {
  int devices = 1;
  uint64_t seed = 1;
  DeviceInfo device{.name = "Fake 1",
                    .major = 9,
                    .minor = 0,
                    .multiprocessors = 132,
                    .memory = Bytes{1} << 30,
                    .l2 = Bytes{50} << 20,
                    .pci = {}};
  DeviceState state{.sm_clock_mhz = 1980, .memory_clock_mhz = 3201, .temperature = 40};
  LibraryVersions versions{
      .driver = 13000, .runtime = 13000, .cublas_lt = 130000, .nccl = 22800, .cudnn = 91900};
  int granularity = 8;  // SMs of a partition are a multiple of it
  int algorithms = 3;   // for each product; the i-th needs i * 1024 bytes of workspace
  std::function<TimeNs(const FakeCost&)> duration = DefaultFakeDuration;
  TimeNs call_cost = 0;
  std::chrono::milliseconds patience{0};
};

class FakeLayer : public Layer {
 public:
  explicit FakeLayer(FakeSettings settings);
  ~FakeLayer() override;

  // --- What goes wrong. `function` is the name of one of Layer's.
  void FailCall(std::string_view function, int nth, GpuErrorKind kind);
  // The n-th kernel or product that is done from now on fails on the device, and takes it with it.
  void BreakLaunch(int nth);
  void Stall(Stream stream);  // nothing on it is done any more
  // As if a peer was gone: nothing more is exchanged, and Failure() says why.
  void Break(Communicator communicator, const std::string& why);
  void SetState(const DeviceState& state);

  // --- What happened
  std::vector<std::string> calls() const;     // of the host, in its order
  std::vector<std::string> executed() const;  // by the devices, in theirs
  std::vector<std::string> misuses() const;
  std::string Log() const;  // all three, and the seed
  bool IsStuck();           // work is left, and none of it can be done
  void Drain();             // does all that can be done
  TimeNs host_time() const;
  Bytes allocated(int device) const;
  int live_streams() const;
  int live_events() const;
  int live_communicators() const;

  // --- Layer
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
  struct EventState {
    int device = 0;
    bool timed = false;
    std::shared_ptr<FakeMark> last;  // null: was never recorded
  };
  struct Planned {
    int left = 0;
    GpuErrorKind kind = GpuErrorKind::kOther;
  };
  struct Posted {  // into an open group
    uint64_t communicator = 0;
    uint64_t stream = 0;
    FakeExchange part;
    std::string words;
  };
  struct OpenGroup {
    int depth = 0;
    std::vector<Posted> posted;
  };

  // What every call does first: it is written down, and may have been told to fail.
  void Enter(const std::string& function, const std::string& words);
  void RequireDevice(int device, const std::string& words);
  FakeStream& Find(Stream stream);
  EventState& Find(Event event);
  void Post(uint64_t stream, FakeWork work, const std::vector<FakeOperand>& operands);
  void CallOn(Stream stream, const Call& call, int algorithm, const std::string& words);
  void RecordInside(uint64_t from, uint64_t to);  // `to` waits for all that `from` has
  void Exchange(const std::string& function, Communicator communicator, Stream stream,
                FakeExchange part);
  void PostGroup(std::vector<Posted> posted);
  void* Take(int device, Bytes bytes);
  void GiveBack(int device, void* memory);
  bool IsNamedByWork(uintptr_t begin, Bytes bytes) const;

  mutable std::recursive_mutex mutex_;
  std::condition_variable_any posted_;
  FakeSettings settings_;
  FakeEngine engine_;
  RaceFinder races_;
  std::map<uint64_t, EventState> events_;
  std::map<uint64_t, std::pair<int, int>> partitions_;  // device, SMs
  std::map<std::string, Planned> planned_;
  std::map<std::thread::id, OpenGroup> groups_;
  std::set<uint64_t> ended_streams_;
  std::vector<std::string> calls_;
  std::vector<Bytes> allocated_;
  TimeNs host_time_ = 0;
  uint64_t next_ = 1;
};

}  // namespace spiritlevel::cuda
