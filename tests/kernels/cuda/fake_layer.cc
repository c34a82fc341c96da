#include "tests/kernels/cuda/fake_layer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "tests/kernels/cuda/fake_operands.h"

namespace spiritlevel::cuda {
namespace {

constexpr Bytes kAlignment = 256;

template <typename Handle>
uint64_t Number(Handle handle) {
  return static_cast<uint64_t>(handle);
}

std::string Name(char letter, uint64_t number) {
  std::string name(1, letter);
  name += std::to_string(number);
  return name;
}
std::string Name(Stream stream) { return Name('s', Number(stream)); }
std::string Name(Event event) { return Name('e', Number(event)); }

std::string Words(GpuErrorKind kind) {
  switch (kind) {
    case GpuErrorKind::kNoDevice:
      return "no device";
    case GpuErrorKind::kOutOfMemory:
      return "out of memory";
    case GpuErrorKind::kUnsupported:
      return "operation not supported";
    case GpuErrorKind::kAsynchronous:
      return "an earlier kernel failed";
    case GpuErrorKind::kCommunication:
      return "remote process exited or there was a network error";
    case GpuErrorKind::kTimeout:
      return "timed out";
    case GpuErrorKind::kOther:
      break;
  }
  return "invalid argument";
}

}  // namespace

TimeNs DefaultFakeDuration(const FakeCost& cost) {
  switch (cost.kind) {
    case FakeCost::Kind::kLaunch:
      return 1'000;
    case FakeCost::Kind::kProduct:
      return 10'000;
    case FakeCost::Kind::kCopy:
    case FakeCost::Kind::kTransfer:
      break;
  }
  return 2'000 + DivideHalfUp(cost.bytes, 100);
}

FakeLayer::FakeLayer(FakeSettings settings)
    : settings_(std::move(settings)),
      engine_(settings_.seed, settings_.duration),
      allocated_(static_cast<size_t>(settings_.devices)) {}

FakeLayer::~FakeLayer() {
  for (const auto& [address, block] : engine_.blocks) std::free(reinterpret_cast<void*>(address));
}

// --- What goes wrong

void FakeLayer::FailCall(std::string_view function, int nth, GpuErrorKind kind) {
  const std::lock_guard lock(mutex_);
  SPIRITLEVEL_CHECK(nth >= 1, "the first call from now is the earliest to fail");
  planned_[std::string(function)] = {nth, kind};
}

void FakeLayer::BreakLaunch(int nth) {
  const std::lock_guard lock(mutex_);
  engine_.BreakLaunch(nth);
}

void FakeLayer::Stall(Stream stream) {
  const std::lock_guard lock(mutex_);
  Find(stream).stalled = true;
}

void FakeLayer::Break(Communicator communicator, const std::string& why) {
  const std::lock_guard lock(mutex_);
  engine_.members.at(Number(communicator)).failure = why;
}

void FakeLayer::SetState(const DeviceState& state) {
  const std::lock_guard lock(mutex_);
  settings_.state = state;
}

void FakeLayer::Enter(const std::string& function, const std::string& words) {
  calls_.push_back(words);
  host_time_ += settings_.call_cost;
  const auto planned = planned_.find(function);
  if (planned == planned_.end() || --planned->second.left > 0) return;
  const GpuErrorKind kind = planned->second.kind;
  planned_.erase(planned);
  calls_.back() += " -> " + Words(kind);
  throw GpuError(kind, words, Words(kind));
}

void FakeLayer::RequireDevice(int device, const std::string& words) {
  if (device < 0 || device >= settings_.devices) {
    throw GpuError(GpuErrorKind::kNoDevice, words, "there is no such device");
  }
  const auto lost = engine_.lost.find(device);
  if (lost != engine_.lost.end()) throw GpuError(GpuErrorKind::kAsynchronous, words, lost->second);
}

// --- What happened

std::vector<std::string> FakeLayer::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeLayer::executed() const {
  const std::lock_guard lock(mutex_);
  return engine_.executed;
}

std::vector<std::string> FakeLayer::misuses() const {
  const std::lock_guard lock(mutex_);
  return engine_.misuses;
}

std::string FakeLayer::Log() const {
  const std::lock_guard lock(mutex_);
  std::string text = "seed " + std::to_string(settings_.seed) + "\ncalled:\n";
  for (const std::string& call : calls_) text += "  " + call + "\n";
  text += "done:\n";
  for (const std::string& work : engine_.executed) text += "  " + work + "\n";
  for (const std::string& misuse : engine_.misuses) text += "misuse: " + misuse + "\n";
  return text;
}

bool FakeLayer::IsStuck() {
  const std::lock_guard lock(mutex_);
  return engine_.IsStuck();
}

void FakeLayer::Drain() {
  const std::lock_guard lock(mutex_);
  while (engine_.Step()) {
  }
}

TimeNs FakeLayer::host_time() const {
  const std::lock_guard lock(mutex_);
  return host_time_;
}

Bytes FakeLayer::allocated(int device) const {
  const std::lock_guard lock(mutex_);
  return allocated_.at(static_cast<size_t>(device));
}

int FakeLayer::live_streams() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(engine_.streams.size() - ended_streams_.size());
}

int FakeLayer::live_events() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(events_.size());
}

int FakeLayer::live_communicators() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(engine_.members.size());
}

// --- Devices

int FakeLayer::NumDevices() {
  const std::lock_guard lock(mutex_);
  return settings_.devices;
}

DeviceInfo FakeLayer::Describe(int device) {
  const std::lock_guard lock(mutex_);
  const std::string words = "describe device " + std::to_string(device);
  Enter("Describe", words);
  RequireDevice(device, words);
  DeviceInfo info = settings_.device;
  if (info.pci.empty()) info.pci = "0000:0" + std::to_string(device) + ":00.0";
  return info;
}

DeviceState FakeLayer::State(int device) {
  const std::lock_guard lock(mutex_);
  Enter("State", "state of device " + std::to_string(device));
  return settings_.state;
}

LibraryVersions FakeLayer::Versions() {
  const std::lock_guard lock(mutex_);
  return settings_.versions;
}

FreeMemory FakeLayer::Memory(int device) {
  const std::lock_guard lock(mutex_);
  const std::string words = "free memory of device " + std::to_string(device);
  Enter("Memory", words);
  RequireDevice(device, words);
  return {settings_.device.memory - allocated_[device], settings_.device.memory};
}

std::vector<Partition> FakeLayer::Split(int device, int parts) {
  const std::lock_guard lock(mutex_);
  const std::string words =
      "split device " + std::to_string(device) + " into " + std::to_string(parts);
  Enter("Split", words);
  RequireDevice(device, words);
  const int each = parts < 1 ? 0
                             : settings_.device.multiprocessors / parts / settings_.granularity *
                                   settings_.granularity;
  if (each == 0) {
    throw GpuError(GpuErrorKind::kUnsupported, words,
                   "a part has at least " + std::to_string(settings_.granularity) + " SMs");
  }
  std::vector<Partition> partitions;
  for (int part = 0; part < parts; ++part) {
    partitions_[next_] = {device, each};
    partitions.push_back(Partition{next_++});
  }
  return partitions;
}

int FakeLayer::Multiprocessors(int device, Partition partition) {
  const std::lock_guard lock(mutex_);
  if (partition == Partition{}) return settings_.device.multiprocessors;
  const auto [owner, count] = partitions_.at(Number(partition));
  SPIRITLEVEL_CHECK(owner == device, "a partition is of its own device");
  return count;
}

// --- Memory

void* FakeLayer::Take(int device, Bytes bytes) {
  const Bytes size =
      std::max<Bytes>(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  void* const memory = std::aligned_alloc(kAlignment, static_cast<size_t>(size));
  SPIRITLEVEL_CHECK(memory != nullptr, "the host has memory for the fake's devices");
  std::memset(memory, 0xff, static_cast<size_t>(size));  // NaN in every type of ours
  engine_.blocks[reinterpret_cast<uintptr_t>(memory)] = {bytes, device};
  return memory;
}

void* FakeLayer::Allocate(int device, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  const std::string words =
      "allocate " + std::to_string(bytes) + " bytes on device " + std::to_string(device);
  Enter("Allocate", words);
  RequireDevice(device, words);
  SPIRITLEVEL_CHECK(bytes > 0, "what is allocated has a size");
  if (allocated_[device] + bytes > settings_.device.memory) {
    calls_.back() += " -> out of memory";
    throw GpuError(GpuErrorKind::kOutOfMemory, words, "out of memory");
  }
  allocated_[device] += bytes;
  return Take(device, bytes);
}

void* FakeLayer::AllocateHost(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  Enter("AllocateHost", "allocate " + std::to_string(bytes) + " bytes of the host");
  return Take(-1, bytes);
}

bool FakeLayer::IsNamedByWork(uintptr_t begin, Bytes bytes) const {
  const auto touches = [&](const void* data, Bytes size) {
    const auto at = reinterpret_cast<uintptr_t>(data);
    return data != nullptr && at < begin + bytes && begin < at + size;
  };
  for (const auto& [id, stream] : engine_.streams) {
    for (const FakeWork& work : stream.work) {
      if (const auto* call = std::get_if<FakeCall>(&work.what)) {
        for (const FakeOperand& operand : OperandsOf(call->call)) {
          if (touches(operand.data, operand.bytes)) return true;
        }
      } else if (const auto* copy = std::get_if<FakeCopy>(&work.what)) {
        if (touches(copy->to, copy->bytes) || touches(copy->from, copy->bytes)) return true;
      } else if (const auto* group = std::get_if<std::shared_ptr<FakeGroup>>(&work.what)) {
        for (const FakeExchange& part : (*group)->parts) {
          if (touches(part.to, part.bytes) || touches(part.from, part.bytes)) return true;
        }
      }
    }
  }
  return false;
}

void FakeLayer::GiveBack(int device, void* memory) {
  if (memory == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto block = engine_.blocks.find(address);
  SPIRITLEVEL_CHECK(block != engine_.blocks.end() && block->second.device == device,
                    "what is freed was allocated there, and is freed once");
  const Bytes bytes = block->second.bytes;
  // cudaFree() waits for the device and would hide it, at a price; nobody should count on that.
  if (IsNamedByWork(address, bytes)) {
    engine_.misuses.push_back("memory of " + std::to_string(bytes) +
                              " bytes is freed while work that was posted uses it");
  }
  races_.Forget(memory, bytes);
  engine_.blocks.erase(block);
  if (device >= 0) allocated_[device] -= bytes;
  std::free(memory);
}

void FakeLayer::Free(int device, void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.push_back("free memory of device " + std::to_string(device));
  GiveBack(device, memory);
}

void FakeLayer::FreeHost(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.push_back("free memory of the host");
  GiveBack(-1, memory);
}

// --- Streams and events

FakeStream& FakeLayer::Find(Stream stream) {
  const auto found = engine_.streams.find(Number(stream));
  SPIRITLEVEL_CHECK(found != engine_.streams.end() && !ended_streams_.contains(Number(stream)),
                    "a stream is of this layer, and not used behind its end");
  return found->second;
}

FakeLayer::EventState& FakeLayer::Find(Event event) {
  const auto found = events_.find(Number(event));
  SPIRITLEVEL_CHECK(found != events_.end(),
                    "an event is of this layer, and not used behind its end");
  return found->second;
}

Stream FakeLayer::MakeStream(int device, Partition partition, bool high_priority) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_;
  std::string words = "make stream " + Name(Stream{id}) + " on device " + std::to_string(device);
  if (partition != Partition{}) words += ", partition " + std::to_string(Number(partition));
  if (high_priority) words += ", high priority";
  Enter("MakeStream", words);
  RequireDevice(device, words);
  if (partition != Partition{}) {
    SPIRITLEVEL_CHECK(partitions_.at(Number(partition)).first == device,
                      "a stream is on its partition's device");
  }
  FakeStream& stream = engine_.streams[next_++];
  stream.device = device;
  stream.partition = Number(partition);
  stream.high_priority = high_priority;
  return Stream{id};
}

Event FakeLayer::MakeEvent(int device, bool timed) {
  const std::lock_guard lock(mutex_);
  const std::string words =
      "make event " + Name(Event{next_}) + " on device " + std::to_string(device);
  Enter("MakeEvent", words);
  RequireDevice(device, words);
  events_[next_] = {device, timed, nullptr};
  return Event{next_++};
}

// What is still on it is done all the same, as CUDA does it.
void FakeLayer::Destroy(Stream stream) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.push_back("destroy " + Name(stream));
  Find(stream);
  ended_streams_.insert(Number(stream));
}

void FakeLayer::Destroy(Event event) noexcept {
  const std::lock_guard lock(mutex_);
  calls_.push_back("destroy " + Name(event));
  Find(event);
  events_.erase(Number(event));
}

void FakeLayer::Record(Event event, Stream stream) {
  const std::lock_guard lock(mutex_);
  const std::string words = "record " + Name(event) + " on " + Name(stream);
  Enter("Record", words);
  EventState& state = Find(event);
  RequireDevice(Find(stream).device, words);
  if (state.device != Find(stream).device) {
    throw GpuError(GpuErrorKind::kOther, words, "the event is of another device than the stream");
  }
  state.last = std::make_shared<FakeMark>();
  state.last->before = races_.Record(Number(stream));
  Post(Number(stream), {.what = FakeRecord{state.last}, .words = words}, {});
}

void FakeLayer::Wait(Stream stream, Event event) {
  const std::lock_guard lock(mutex_);
  const std::string words = Name(stream) + " waits for " + Name(event);
  Enter("Wait", words);
  RequireDevice(Find(stream).device, words);
  const std::shared_ptr<FakeMark> mark = Find(event).last;
  if (mark == nullptr) return;  // never recorded: no wait
  races_.Wait(Number(stream), mark->before);
  Post(Number(stream), {.what = FakeWait{mark}, .words = words}, {});
}

bool FakeLayer::IsDone(Event event) {
  const std::lock_guard lock(mutex_);
  EventState& state = Find(event);
  const std::string words = "is " + Name(event) + " done";
  Enter("IsDone", words);
  // The device goes on meanwhile, or not: nobody may count on either.
  for (uint64_t step = engine_.Random(3); step > 0; --step) engine_.Step();
  RequireDevice(state.device, words);
  if (state.last == nullptr) return true;
  if (!state.last->done) return false;
  host_time_ = std::max(host_time_, state.last->at);
  races_.HostSaw(state.last->before);
  return true;
}

void FakeLayer::Synchronize(Stream stream) {
  std::unique_lock lock(mutex_);
  const std::string words = "synchronize " + Name(stream);
  Enter("Synchronize", words);
  FakeStream& state = Find(stream);
  while (true) {
    RequireDevice(state.device, words);
    if (state.work.empty()) break;
    if (engine_.Step()) {
      posted_.notify_all();
      continue;
    }
    if (posted_.wait_for(lock, settings_.patience) == std::cv_status::no_timeout) continue;
    if (engine_.Step()) continue;
    throw GpuError(GpuErrorKind::kTimeout, words, "nothing can go on: " + engine_.WhatWaits());
  }
  host_time_ = std::max(host_time_, state.now);
  races_.HostSawAllOf(Number(stream));
}

TimeNs FakeLayer::Between(Event first, Event second) {
  const std::lock_guard lock(mutex_);
  const std::string words = "time between " + Name(first) + " and " + Name(second);
  Enter("Between", words);
  const EventState& a = Find(first);
  const EventState& b = Find(second);
  RequireDevice(a.device, words);
  if (!a.timed || !b.timed || a.device != b.device || !a.last || !b.last || !a.last->done ||
      !b.last->done) {
    throw GpuError(GpuErrorKind::kOther, words,
                   "both have to be timed, of one device, recorded and done");
  }
  return b.last->at - a.last->at;
}

// --- Work

void FakeLayer::Post(uint64_t stream, FakeWork work, const std::vector<FakeOperand>& operands) {
  work.posted = host_time_;
  if (!operands.empty()) {
    if (const auto race = races_.Post(stream, operands, work.words)) {
      engine_.misuses.push_back(*race);
    }
  }
  engine_.Post(stream, std::move(work));
  posted_.notify_all();
}

void FakeLayer::CallOn(Stream stream, const Call& call, int algorithm, const std::string& words) {
  RequireDevice(Find(stream).device, words);
  CheckCall(call);
  Post(Number(stream), {.what = FakeCall{call, algorithm}, .words = words}, OperandsOf(call));
}

void FakeLayer::Launch(Stream stream, const Call& call) {
  const std::lock_guard lock(mutex_);
  const std::string words = "launch " + std::string(NameOf(call)) + " on " + Name(stream);
  Enter("Launch", words);
  SPIRITLEVEL_CHECK(!std::holds_alternative<Product>(call), "a product is not launched");
  CallOn(stream, call, 0, words);
}

std::vector<ProductAlgorithm> FakeLayer::FindAlgorithms(int device, const Product& product,
                                                        Bytes workspace, int most) {
  const std::lock_guard lock(mutex_);
  const std::string words = "find algorithms on device " + std::to_string(device);
  Enter("FindAlgorithms", words);
  RequireDevice(device, words);
  CheckCall(product);
  std::vector<ProductAlgorithm> found;
  for (int i = 0; i < std::min(settings_.algorithms, most); ++i) {
    if (i * 1024 > workspace) break;
    found.push_back({{static_cast<std::byte>(i)}, i * 1024});
  }
  return found;
}

void FakeLayer::Multiply(Stream stream, const Product& product, const ProductAlgorithm& algorithm,
                         void* workspace) {
  const std::lock_guard lock(mutex_);
  SPIRITLEVEL_CHECK(algorithm.opaque.size() == 1, "an algorithm is one that was found");
  const int number = static_cast<int>(algorithm.opaque[0]);
  const std::string words =
      "multiply on " + Name(stream) + " by algorithm " + std::to_string(number);
  Enter("Multiply", words);
  SPIRITLEVEL_CHECK(algorithm.workspace == 0 || workspace != nullptr,
                    "an algorithm gets the workspace that it needs");
  CallOn(stream, product, number, words);
  if (algorithm.workspace > 0) {
    const auto race = races_.Post(Number(stream), {{workspace, algorithm.workspace, true}},
                                  words + " (workspace)");
    if (race) engine_.misuses.push_back(*race);
  }
}

void FakeLayer::Copy(Stream stream, void* to, const void* from, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  const std::string words = "copy " + std::to_string(bytes) + " bytes on " + Name(stream);
  Enter("Copy", words);
  RequireDevice(Find(stream).device, words);
  if (bytes == 0) return;
  Post(Number(stream), {.what = FakeCopy{to, from, bytes}, .words = words},
       {{from, bytes, false}, {to, bytes, true}});
}

}  // namespace spiritlevel::cuda
