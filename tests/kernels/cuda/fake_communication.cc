// FakeLayer's communication: what NCCL promises, and nothing more.
#include <algorithm>

#include "base/check.h"
#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel::cuda {
namespace {

std::string Name(uint64_t communicator) {
  std::string name(1, 'c');
  name += std::to_string(communicator);
  return name;
}

std::string Key(const CommunicatorId& id) {
  return std::string(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
}

}  // namespace

CommunicatorId FakeLayer::MakeCommunicatorId() {
  const std::lock_guard lock(mutex_);
  Enter("MakeCommunicatorId", "make a communicator's id");
  const std::string text = "clique " + std::to_string(next_++);
  CommunicatorId id;
  for (const char c : text) id.bytes.push_back(static_cast<std::byte>(c));
  return id;
}

// Does not wait for the other ranks, so that one thread can make them all without a group too;
// nothing is exchanged before all of them have come.
Communicator FakeLayer::MakeCommunicator(int device, const CommunicatorId& id, int size, int rank) {
  const std::lock_guard lock(mutex_);
  const std::string words = "make communicator " + Name(next_) + ", rank " + std::to_string(rank) +
                            " of " + std::to_string(size) + ", on device " + std::to_string(device);
  Enter("MakeCommunicator", words);
  RequireDevice(device, words);
  SPIRITLEVEL_CHECK(size >= 1 && rank >= 0 && rank < size, "a communicator has this rank");
  FakeClique& clique = engine_.cliques[Key(id)];
  if (clique.members.empty()) clique.members.resize(static_cast<size_t>(size));
  if (static_cast<int>(clique.members.size()) != size || clique.members[rank] != 0) {
    throw GpuError(GpuErrorKind::kCommunication, words, "the ranks do not fit together");
  }
  for (const uint64_t other : clique.members) {
    if (other == 0 || engine_.members.at(other).device != device) continue;
    throw GpuError(GpuErrorKind::kCommunication, words,
                   "two ranks of one communicator are on one device, which NCCL refuses");
  }
  clique.members[rank] = next_;
  engine_.members[next_] = {.clique = Key(id),
                            .rank = rank,
                            .device = device,
                            .posted = {},
                            .aborted = false,
                            .failure = {}};
  return Communicator{next_++};
}

void FakeLayer::Destroy(Communicator communicator) noexcept {
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<uint64_t>(communicator);
  calls_.push_back("destroy " + Name(id));
  const auto found = engine_.members.find(id);
  SPIRITLEVEL_CHECK(found != engine_.members.end(), "a communicator ends once");
  if (!found->second.posted.empty()) {
    engine_.misuses.push_back(Name(id) + " is destroyed with work under way");
  }
  engine_.Abort(id);
  FakeClique& clique = engine_.cliques.at(found->second.clique);
  std::replace(clique.members.begin(), clique.members.end(), id, uint64_t{0});
  engine_.members.erase(found);
}

void FakeLayer::BeginGroup() {
  const std::lock_guard lock(mutex_);
  Enter("BeginGroup", "begin a group");
  ++groups_[std::this_thread::get_id()].depth;
}

void FakeLayer::EndGroup() {
  const std::lock_guard lock(mutex_);
  OpenGroup& open = groups_[std::this_thread::get_id()];
  SPIRITLEVEL_CHECK(open.depth > 0, "a group that ends was begun");
  if (--open.depth > 0) {
    Enter("EndGroup", "end an inner group");
    return;
  }
  // It is over, also where this fails.
  std::vector<Posted> posted = std::move(open.posted);
  groups_.erase(std::this_thread::get_id());
  Enter("EndGroup", "end the group");
  PostGroup(std::move(posted));
}

void FakeLayer::RecordInside(uint64_t from, uint64_t to) {
  if (from == to) return;
  const auto mark = std::make_shared<FakeMark>();
  mark->before = races_.Record(from);
  Post(from, {.what = FakeRecord{mark}, .words = "record of a group"}, {});
  races_.Wait(to, mark->before);
  Post(to, {.what = FakeWait{mark}, .words = "wait of a group"}, {});
}

// Per communicator one piece of work, behind what all of its streams have and before what they get.
void FakeLayer::PostGroup(std::vector<Posted> posted) {
  std::vector<uint64_t> communicators;
  for (const Posted& one : posted) {
    if (std::find(communicators.begin(), communicators.end(), one.communicator) ==
        communicators.end()) {
      communicators.push_back(one.communicator);
    }
  }
  for (const uint64_t communicator : communicators) {
    auto group = std::make_shared<FakeGroup>();
    group->communicator = communicator;
    std::vector<FakeOperand> operands;
    std::vector<uint64_t> streams;
    std::string words;
    const int64_t size = static_cast<int64_t>(
        engine_.cliques.at(engine_.members.at(communicator).clique).members.size());
    for (const Posted& one : posted) {
      if (one.communicator != communicator) continue;
      const FakeExchange& part = one.part;
      const bool from_all =
          part.kind == FakeExchangeKind::kReduceScatter || part.kind == FakeExchangeKind::kAllToAll;
      const bool to_all =
          part.kind == FakeExchangeKind::kAllGather || part.kind == FakeExchangeKind::kAllToAll;
      if (part.from != nullptr) {
        operands.push_back({part.from, part.bytes * (from_all ? size : 1), false});
      }
      if (part.to != nullptr) {
        operands.push_back({part.to, part.bytes * (to_all ? size : 1), true});
      }
      group->parts.push_back(part);
      streams.push_back(one.stream);
      words += (words.empty() ? "" : " + ") + one.words;
    }
    group->stream = streams.front();
    for (const uint64_t stream : streams) RecordInside(stream, group->stream);
    Post(group->stream, {.what = group, .words = words}, operands);
    for (const uint64_t stream : streams) RecordInside(group->stream, stream);
  }
}

void FakeLayer::Exchange(const std::string& function, Communicator communicator, Stream stream,
                         FakeExchange part) {
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<uint64_t>(communicator);
  std::string words = function + " of " + std::to_string(part.bytes) + " bytes on " + Name(id) +
                      ", s" + std::to_string(static_cast<uint64_t>(stream));
  if (part.peer >= 0) {
    words += (part.kind == FakeExchangeKind::kSend ? " to " : " from ") + std::to_string(part.peer);
  }
  Enter(function, words);
  RequireDevice(Find(stream).device, words);
  const auto found = engine_.members.find(id);
  SPIRITLEVEL_CHECK(found != engine_.members.end(),
                    "a communicator is of this layer, and not used behind its end");
  const FakeMember& member = found->second;
  SPIRITLEVEL_CHECK(member.device == Find(stream).device,
                    "a stream and a communicator are of one device");
  SPIRITLEVEL_CHECK(
      part.is_collective() ||
          (part.peer >= 0 &&
           part.peer < static_cast<int>(engine_.cliques.at(member.clique).members.size())),
      "a peer is a rank of the communicator");
  if (member.failure) throw GpuError(GpuErrorKind::kCommunication, words, *member.failure);
  const auto open = groups_.find(std::this_thread::get_id());
  Posted posted{id, static_cast<uint64_t>(stream), part, words};
  if (open != groups_.end() && open->second.depth > 0) {
    open->second.posted.push_back(std::move(posted));
  } else {
    PostGroup({std::move(posted)});
  }
}

void FakeLayer::Send(Communicator communicator, Stream stream, const void* data, Bytes bytes,
                     int peer) {
  Exchange("Send", communicator, stream,
           {.kind = FakeExchangeKind::kSend, .from = data, .bytes = bytes, .peer = peer});
}

void FakeLayer::Receive(Communicator communicator, Stream stream, void* data, Bytes bytes,
                        int peer) {
  Exchange("Receive", communicator, stream,
           {.kind = FakeExchangeKind::kReceive, .to = data, .bytes = bytes, .peer = peer});
}

void FakeLayer::AllReduce(Communicator communicator, Stream stream, View data,
                          Reduction reduction) {
  SPIRITLEVEL_CHECK(!data.has_gaps() || data.rows == 1, "what is reduced has no gaps");
  Exchange("AllReduce", communicator, stream,
           {.kind = FakeExchangeKind::kAllReduce,
            .from = data.data,
            .to = data.data,
            .bytes = data.size() * SizeOf(data.type),
            .type = data.type,
            .reduction = reduction});
}

void FakeLayer::ReduceScatter(Communicator communicator, Stream stream, View from, View to) {
  SPIRITLEVEL_CHECK(from.type == to.type && (!from.has_gaps() || from.rows == 1) &&
                        (!to.has_gaps() || to.rows == 1),
                    "what is reduced has one type and no gaps");
  Exchange("ReduceScatter", communicator, stream,
           {.kind = FakeExchangeKind::kReduceScatter,
            .from = from.data,
            .to = to.data,
            .bytes = to.size() * SizeOf(to.type),
            .type = to.type});
}

void FakeLayer::AllGather(Communicator communicator, Stream stream, const void* from, void* to,
                          Bytes bytes_of_each) {
  Exchange("AllGather", communicator, stream,
           {.kind = FakeExchangeKind::kAllGather, .from = from, .to = to, .bytes = bytes_of_each});
}

void FakeLayer::AllToAll(Communicator communicator, Stream stream, const void* from, void* to,
                         Bytes bytes_for_each) {
  Exchange("AllToAll", communicator, stream,
           {.kind = FakeExchangeKind::kAllToAll, .from = from, .to = to, .bytes = bytes_for_each});
}

std::optional<std::string> FakeLayer::Failure(Communicator communicator) {
  const std::lock_guard lock(mutex_);
  return engine_.members.at(static_cast<uint64_t>(communicator)).failure;
}

void FakeLayer::Abort(Communicator communicator) noexcept {
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<uint64_t>(communicator);
  calls_.push_back("abort " + Name(id));
  engine_.Abort(id);
  posted_.notify_all();
}

}  // namespace spiritlevel::cuda
