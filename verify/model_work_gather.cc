#include "verify/model_work_gather.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/model/stage_sizes.h"

namespace spiritlevel {
namespace {

constexpr Bytes kCacheLine = 64;

std::vector<Bytes> PlacesOf(const TrainingTask& task) {
  std::vector<Bytes> begin{0};
  for (const cpu::StageRange& range : task.stages) {
    const Bytes bytes = cpu::SizesOf(task.shape, range).parameters;
    begin.push_back(begin.back() + (bytes + kCacheLine - 1) / kCacheLine * kCacheLine);
  }
  return begin;
}

}  // namespace

ParameterGather::ParameterGather(const TrainingTask& task)
    : replicas_(task.replicas),
      begin_(PlacesOf(task)),
      arena_(static_cast<size_t>(2 * begin_.back() + 4 * kCacheLine) +
                 2 * task.stages.size() *
                     (sizeof(Place) + static_cast<size_t>(task.replicas) * sizeof(Bell)),
             /*shared=*/true),
      places_(arena_.Array<Place>(2 * task.stages.size())),
      bells_(arena_.Array<Bell>(places_.size() * static_cast<size_t>(task.replicas))),
      bytes_(arena_.Array<std::byte>(static_cast<size_t>(2 * begin_.back()))) {}

// False once the run has failed. Sleeps between looks: whoever waits here may keep another replica
// from its core.
bool ParameterGather::WaitFor(const std::atomic<int64_t>& count, int64_t least, Bell& bell,
                              const std::atomic<bool>& stopping) {
  constexpr TimeNs kPatience = 20'000;
  while (true) {
    const uint32_t heard = bell.rings();
    if (count.load(std::memory_order_acquire) >= least) return true;
    if (stopping.load()) return false;
    bell.WaitForRing(heard, kPatience, 0);
  }
}

void ParameterGather::Add(std::atomic<int64_t>& count, std::span<Bell> bells) {
  count.fetch_add(1, std::memory_order_acq_rel);
  for (Bell& bell : bells) bell.Ring();
}

void ParameterGather::Exchange(int stage, int copy, int replica, int64_t time,
                               const std::function<void(std::span<std::byte>)>& write,
                               const std::function<void(std::span<const std::byte>)>& read,
                               const std::atomic<bool>& stopping) {
  SPIRITLEVEL_CHECK(copy == 0 || copy == 1, "at most two ranks hold a stage");
  const auto at = static_cast<size_t>(2 * stage + copy);
  const auto replicas = static_cast<size_t>(replicas_);
  Place& place = places_[at];
  const std::span<Bell> bells = bells_.subspan(at * replicas, replicas);
  Bell& bell = bells[static_cast<size_t>(replica)];
  const Bytes size = begin_[static_cast<size_t>(stage) + 1] - begin_[static_cast<size_t>(stage)];
  const std::span<std::byte> bytes =
      bytes_.subspan(static_cast<size_t>(2 * begin_[static_cast<size_t>(stage)] + copy * size),
                     static_cast<size_t>(size));
  // What was written the last time has been read by all.
  if (!WaitFor(place.read, replicas_ * (time - 1), bell, stopping)) return;
  write(bytes);
  Add(place.written, bells);
  if (!WaitFor(place.written, replicas_ * time, bell, stopping)) return;
  read(bytes);
  Add(place.read, bells);
}

void ParameterGather::Reset() {
  for (Place& place : places_) {
    place.written.store(0);
    place.read.store(0);
  }
}

namespace {

// Before the bytes of the parameters, in the stage's order.
struct SentHeader {
  int64_t step = 0;
  int64_t stage = 0;
};

}  // namespace

void SentParameters::Send(int stage, int64_t step, const cpu::ParameterStore& parameters) {
  const std::vector<int> owned = OwnedBy(task_, stage, replica_);
  size_t size = sizeof(SentHeader);
  for (const int i : owned) size += static_cast<size_t>(parameters.value(i).bytes());
  std::vector<std::byte> bytes(size);
  const SentHeader header{.step = step, .stage = stage};
  std::memcpy(bytes.data(), &header, sizeof(header));
  size_t at = sizeof(header);
  for (const int i : owned) {
    const cpu::Tensor& value = parameters.value(i);
    std::memcpy(bytes.data() + at, value.data(), static_cast<size_t>(value.bytes()));
    at += static_cast<size_t>(value.bytes());
  }
  for (int other = 0; other < task_.replicas; ++other) {
    if (other != replica_) side_.Send(other * ranks_ + rank_, kTopic, bytes);
  }
}

void SentParameters::Receive(int64_t step,
                             const std::function<cpu::ParameterStore&(int stage)>& parameters_of) {
  const SideMessage message = side_.Receive(kTopic);
  const std::span<const std::byte> bytes = message.payload.bytes();
  SentHeader header;
  SPIRITLEVEL_CHECK(bytes.size() >= sizeof(header) && message.from % ranks_ == rank_,
                    "parameters come from the same rank of another replica");
  std::memcpy(&header, bytes.data(), sizeof(header));
  SPIRITLEVEL_CHECK(header.step == step, "no replica is a step ahead of another");
  const auto stage = static_cast<int>(header.stage);
  cpu::ParameterStore& parameters = parameters_of(stage);
  size_t at = sizeof(header);
  for (const int i : OwnedBy(task_, stage, message.from / ranks_)) {
    cpu::Tensor& value = parameters.value(i);
    const auto size = static_cast<size_t>(value.bytes());
    SPIRITLEVEL_CHECK(at + size <= bytes.size(), "of all that the other owns");
    std::memcpy(value.data(), bytes.data() + at, size);
    at += size;
  }
  SPIRITLEVEL_CHECK(at == bytes.size(), "of nothing else");
}

}  // namespace spiritlevel
