#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/cuda_communication.h"

namespace spiritlevel::cuda {

struct CudaCommunicator {
  ncclComm_t comm = nullptr;  // null once it was aborted
  int device = 0;
  int size = 0;
  std::optional<std::string> failure;
};

// NCCL's groups are of a thread, and so are these. A group is of one layer: it is over before its
// layer is.
struct CudaCommunication::Group {
  int depth = 0;
  std::vector<std::shared_ptr<CudaCommunicator>> used;
  std::vector<Unsettled*> streams;
  std::vector<std::shared_ptr<CudaCommunicator>> made;
};

namespace {

// For a peer to come. Not for the work itself, which is waited for elsewhere.
constexpr std::chrono::seconds kPatience{60};

Communicator HandleOf(const std::shared_ptr<CudaCommunicator>& communicator) {
  return static_cast<Communicator>(reinterpret_cast<uint64_t>(communicator.get()));
}

bool IsFine(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

GpuErrorKind KindOf(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return GpuErrorKind::kAsynchronous;
    case ncclInvalidArgument:
      return GpuErrorKind::kOther;
    default:
      return GpuErrorKind::kCommunication;
  }
}

[[noreturn]] void Throw(ncclResult_t result, std::string_view call, ncclComm_t comm = nullptr) {
  std::string what = ncclGetErrorString(result);
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') what += std::string(" (") + more + ")";
  throw GpuError(KindOf(result), std::string(call), what);
}

void Check(ncclResult_t result, std::string_view call) {
  if (!IsFine(result)) Throw(result, call);
}

ncclDataType_t TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return ncclFloat32;
    case ElementType::kBFloat16:
      return ncclBfloat16;
    case ElementType::kInt32:
      return ncclInt32;
    case ElementType::kFloat64:
      return ncclFloat64;
    case ElementType::kFloat8E4M3:
    case ElementType::kFloat8E5M2:
      break;
  }
  throw GpuError(GpuErrorKind::kUnsupported, "a reduction", "sums of fp8 are of no use");
}

void End(CudaCommunicator* communicator, const std::string& why) {
  if (communicator->comm != nullptr) ncclCommAbort(communicator->comm);
  communicator->comm = nullptr;
  if (!communicator->failure) communicator->failure = why;
}

// Until it has no call of NCCL under way.
void SettleOne(CudaCommunicator* communicator, std::string_view call) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    if (communicator->comm == nullptr) {
      throw GpuError(GpuErrorKind::kCommunication, std::string(call),
                     communicator->failure.value_or("the communicator has ended"));
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator->comm, &state);
    if (asked == ncclSuccess && state == ncclSuccess) return;
    if (asked != ncclSuccess || state != ncclInProgress) {
      const ncclResult_t error = asked != ncclSuccess ? asked : state;
      std::string what = ncclGetErrorString(error);
      End(communicator, what);
      throw GpuError(KindOf(error), std::string(call), what);
    }
    if (std::chrono::steady_clock::now() > end) {
      End(communicator, "a peer did not come");
      throw GpuError(GpuErrorKind::kTimeout, std::string(call),
                     "a peer did not come within " + std::to_string(kPatience.count()) + " s");
    }
    std::this_thread::yield();
  }
}

}  // namespace

CudaCommunication::CudaCommunication() = default;

CudaCommunication::~CudaCommunication() {
  for (const auto& communicator : communicators_) End(communicator.get(), "its layer has ended");
}

int CudaCommunication::Version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

CudaCommunication::Group& CudaCommunication::OpenGroup() {
  thread_local Group group;
  return group;
}

CudaCommunicator& CudaCommunication::Find(Communicator communicator) const {
  const std::lock_guard lock(mutex_);
  for (const auto& one : communicators_) {
    if (HandleOf(one) == communicator) {
      return *one;
    }
  }
  SPIRITLEVEL_CHECK(false, "a communicator is of this layer, and not used behind its end");
}

int CudaCommunication::device_of(Communicator communicator) const {
  return Find(communicator).device;
}

CommunicatorId CudaCommunication::MakeId() {
  ncclUniqueId unique{};
  Check(ncclGetUniqueId(&unique), "ncclGetUniqueId");
  CommunicatorId id;
  id.bytes.resize(sizeof(unique));
  std::memcpy(id.bytes.data(), &unique, sizeof(unique));
  return id;
}

Communicator CudaCommunication::Make(int device, const CommunicatorId& id, int size, int rank) {
  ncclUniqueId unique{};
  SPIRITLEVEL_CHECK(id.bytes.size() == sizeof(unique), "a communicator's id is NCCL's");
  std::memcpy(&unique, id.bytes.data(), sizeof(unique));
  const auto communicator = std::make_shared<CudaCommunicator>();
  communicator->device = device;
  communicator->size = size;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result =
      ncclCommInitRankConfig(&communicator->comm, size, unique, rank, &config);
  if (!IsFine(result)) Throw(result, "ncclCommInitRankConfig", communicator->comm);
  Group& group = OpenGroup();
  if (group.depth > 0) {
    group.made.push_back(communicator);
  } else {
    SettleOne(communicator.get(), "ncclCommInitRankConfig");
  }
  const std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
  return HandleOf(communicator);
}

// By an abort, also where all is well: ncclCommDestroy() and ncclCommFinalize() wait for the other
// ranks to do the same, and one thread that has several would wait for itself. Work that is done
// loses nothing by it.
void CudaCommunication::Destroy(Communicator communicator) noexcept {
  std::shared_ptr<CudaCommunicator> ended;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : communicators_) {
      if (HandleOf(one) == communicator) ended = one;
    }
    std::erase(communicators_, ended);
  }
  if (ended != nullptr) End(ended.get(), "it has ended");
}

void CudaCommunication::BeginGroup() {
  Check(ncclGroupStart(), "ncclGroupStart");
  ++OpenGroup().depth;
}

void CudaCommunication::EndGroup() {
  Group& open = OpenGroup();
  SPIRITLEVEL_CHECK(open.depth > 0, "a group that ends was begun");
  const ncclResult_t result = ncclGroupEnd();
  if (--open.depth > 0) {
    Check(result, "ncclGroupEnd");
    return;
  }
  const Group group = std::exchange(open, Group{});
  Check(result, "ncclGroupEnd");
  for (const auto& made : group.made) SettleOne(made.get(), "ncclCommInitRankConfig");
  for (Unsettled* stream : group.streams) {
    for (const auto& used : group.used) {
      if (std::find(stream->begin(), stream->end(), used) == stream->end()) {
        stream->push_back(used);
      }
    }
  }
}

void CudaCommunication::Settle(Unsettled* unsettled) {
  while (!unsettled->empty()) {
    const std::shared_ptr<CudaCommunicator> last = unsettled->back();
    unsettled->pop_back();
    // One that was aborted has nothing more to put there; the streams of others come free.
    if (last->comm != nullptr) SettleOne(last.get(), "what was posted to NCCL");
  }
}

void CudaCommunication::Post(Communicator communicator, Place place, std::string_view call,
                             const std::function<int(CudaCommunicator&)>& post) {
  CudaCommunicator& one = Find(communicator);
  if (one.failure) throw GpuError(GpuErrorKind::kCommunication, std::string(call), *one.failure);
  Group& group = OpenGroup();
  const bool alone = group.depth == 0;
  const bool first = std::none_of(group.used.begin(), group.used.end(),
                                  [&](const auto& used) { return used.get() == &one; });
  // The last group of this communicator, and what others have still to put on this stream.
  if (first) SettleOne(&one, call);
  Settle(place.unsettled);
  if (alone) BeginGroup();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& shared : communicators_) {
      if (shared.get() == &one && first) group.used.push_back(shared);
    }
  }
  if (std::find(group.streams.begin(), group.streams.end(), place.unsettled) ==
      group.streams.end()) {
    group.streams.push_back(place.unsettled);
  }
  ncclResult_t result = ncclSuccess;
  try {
    result = static_cast<ncclResult_t>(post(one));
  } catch (...) {
    // Or all that this thread ever posts would be kept for the end of this group.
    if (alone) {
      ncclGroupEnd();
      group = Group{};
    }
    throw;
  }
  if (alone) EndGroup();
  if (!IsFine(result)) Throw(result, call, one.comm);
}

void CudaCommunication::Send(Communicator communicator, Place place, const Part& part) {
  Post(communicator, place, "ncclSend", [&](CudaCommunicator& one) {
    return ncclSend(part.from, static_cast<size_t>(part.bytes), ncclInt8, part.peer, one.comm,
                    place.stream);
  });
}

void CudaCommunication::Receive(Communicator communicator, Place place, const Part& part) {
  Post(communicator, place, "ncclRecv", [&](CudaCommunicator& one) {
    return ncclRecv(part.to, static_cast<size_t>(part.bytes), ncclInt8, part.peer, one.comm,
                    place.stream);
  });
}

void CudaCommunication::AllReduce(Communicator communicator, Place place, View data,
                                  Reduction reduction) {
  SPIRITLEVEL_CHECK(!data.has_gaps() || data.rows == 1, "what is reduced has no gaps");
  Post(communicator, place, "ncclAllReduce", [&](CudaCommunicator& one) {
    return ncclAllReduce(data.data, data.data, static_cast<size_t>(data.size()), TypeOf(data.type),
                         reduction == Reduction::kSum ? ncclSum : ncclMax, one.comm, place.stream);
  });
}

void CudaCommunication::ReduceScatter(Communicator communicator, Place place, View from, View to) {
  SPIRITLEVEL_CHECK(from.type == to.type && (!from.has_gaps() || from.rows == 1) &&
                        (!to.has_gaps() || to.rows == 1),
                    "what is reduced has one type and no gaps");
  Post(communicator, place, "ncclReduceScatter", [&](CudaCommunicator& one) {
    SPIRITLEVEL_CHECK(from.size() == to.size() * one.size, "each rank gets an equal part");
    return ncclReduceScatter(from.data, to.data, static_cast<size_t>(to.size()), TypeOf(to.type),
                             ncclSum, one.comm, place.stream);
  });
}

void CudaCommunication::AllGather(Communicator communicator, Place place, const Part& part) {
  Post(communicator, place, "ncclAllGather", [&](CudaCommunicator& one) {
    return ncclAllGather(part.from, part.to, static_cast<size_t>(part.bytes), ncclInt8, one.comm,
                         place.stream);
  });
}

void CudaCommunication::AllToAll(Communicator communicator, Place place, const Part& part) {
  Post(communicator, place, "all-to-all by ncclSend and ncclRecv", [&](CudaCommunicator& one) {
    const auto bytes = static_cast<size_t>(part.bytes);
    for (int peer = 0; peer < one.size; ++peer) {
      const auto* from = static_cast<const std::byte*>(part.from) + peer * part.bytes;
      auto* to = static_cast<std::byte*>(part.to) + peer * part.bytes;
      ncclResult_t result = ncclSend(from, bytes, ncclInt8, peer, one.comm, place.stream);
      if (IsFine(result)) result = ncclRecv(to, bytes, ncclInt8, peer, one.comm, place.stream);
      if (!IsFine(result)) return result;
    }
    return ncclSuccess;
  });
}

std::optional<std::string> CudaCommunication::Failure(Communicator communicator) {
  CudaCommunicator& one = Find(communicator);
  if (one.failure || one.comm == nullptr) return one.failure;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(one.comm, &state);
  if (asked != ncclSuccess) return ncclGetErrorString(asked);
  if (!IsFine(state)) return ncclGetErrorString(state);
  return {};
}

std::optional<std::string> CudaCommunication::FailureOn(int device) {
  std::vector<Communicator> here;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : communicators_) {
      if (one->device != device || one->comm == nullptr) continue;
      here.push_back(HandleOf(one));
    }
  }
  for (const Communicator one : here) {
    if (auto failure = Failure(one)) return failure;
  }
  return {};
}

void CudaCommunication::Abort(Communicator communicator) noexcept {
  End(&Find(communicator), "it was aborted");
}

}  // namespace spiritlevel::cuda
