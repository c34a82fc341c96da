// The part of the engine that is between ranks.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tests/kernels/cuda/fake_engine.h"

namespace spiritlevel::cuda {
namespace {

float ReadElement(const void* data, ElementType type, int64_t i) {
  if (type == ElementType::kFloat32) return static_cast<const float*>(data)[i];
  const uint32_t bits = static_cast<const uint16_t*>(data)[i];
  return std::bit_cast<float>(bits << 16);
}

void WriteElement(void* data, ElementType type, int64_t i, float value) {
  if (type == ElementType::kFloat32) {
    static_cast<float*>(data)[i] = value;
    return;
  }
  // To nearest, ties to even.
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + ((bits >> 16) & 1);
  static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
}

// Of elements [first, first + count) of each `from`, in the order of ranks, in fp32.
void Reduce(const std::vector<const void*>& from, void* to, int64_t first, int64_t count,
            ElementType type, Reduction reduction) {
  std::vector<float> sums(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    float sum = ReadElement(from[0], type, first + i);
    for (size_t r = 1; r < from.size(); ++r) {
      const float next = ReadElement(from[r], type, first + i);
      sum = reduction == Reduction::kSum ? sum + next : std::max(sum, next);
    }
    sums[i] = sum;
  }
  for (int64_t i = 0; i < count; ++i) WriteElement(to, type, i, sums[i]);
}

bool ReadsAll(FakeExchangeKind kind) {
  return kind == FakeExchangeKind::kReduceScatter || kind == FakeExchangeKind::kAllToAll;
}

bool WritesAll(FakeExchangeKind kind) {
  return kind == FakeExchangeKind::kAllGather || kind == FakeExchangeKind::kAllToAll;
}

// What a rank has of a collective in the end.
std::vector<std::byte> ResultOf(const std::vector<FakeExchange*>& parts, int64_t rank) {
  const FakeExchange& first = *parts.front();
  std::vector<const void*> sources;
  for (const FakeExchange* part : parts) sources.push_back(part->from);
  std::vector<std::byte> result;
  if (WritesAll(first.kind)) {
    const Bytes offset = ReadsAll(first.kind) ? rank * first.bytes : 0;
    for (const void* source : sources) {
      const auto* begin = static_cast<const std::byte*>(source) + offset;
      result.insert(result.end(), begin, begin + first.bytes);
    }
    return result;
  }
  const int64_t elements = first.bytes / SizeOf(first.type);
  result.resize(static_cast<size_t>(first.bytes));
  Reduce(sources, result.data(), ReadsAll(first.kind) ? rank * elements : 0, elements, first.type,
         first.reduction);
  return result;
}

FakeExchange* FirstUndone(FakeGroup* group, FakeExchangeKind kind, int peer) {
  for (FakeExchange& part : group->parts) {
    if (!part.done && part.kind == kind && part.peer == peer) return &part;
  }
  return nullptr;
}

FakeExchange* FirstUndoneCollective(FakeGroup* group) {
  for (FakeExchange& part : group->parts) {
    if (!part.done && part.is_collective()) return &part;
  }
  return nullptr;
}

}  // namespace

FakeGroup* FakeEngine::Active(uint64_t id) {
  if (id == 0) return nullptr;
  FakeMember& member = members.at(id);
  if (member.posted.empty() || member.failure) return nullptr;
  FakeGroup* const group = member.posted.front().get();
  const FakeStream& stream = streams.at(group->stream);
  if (stream.stalled || lost.contains(stream.device) || stream.work.empty()) return nullptr;
  const auto* head = std::get_if<std::shared_ptr<FakeGroup>>(&stream.work.front().what);
  return head != nullptr && head->get() == group ? group : nullptr;
}

void FakeEngine::AddExchanges(uint64_t id, FakeGroup* group, std::vector<Action>* actions) {
  const FakeMember& member = members.at(id);
  const std::vector<uint64_t>& ranks = cliques.at(member.clique).members;
  for (int peer = 0; peer < static_cast<int>(ranks.size()); ++peer) {
    FakeExchange* const send = FirstUndone(group, FakeExchangeKind::kSend, peer);
    FakeGroup* const theirs = send == nullptr ? nullptr : Active(ranks[peer]);
    if (theirs == nullptr) continue;
    FakeExchange* const receive = FirstUndone(theirs, FakeExchangeKind::kReceive, member.rank);
    if (receive == nullptr) continue;
    const uint64_t receiver = ranks[peer];
    actions->push_back(
        [this, id, send, receiver, receive] { DoPair(id, send, receiver, receive); });
  }
  FakeExchange* const collective = FirstUndoneCollective(group);
  // Once for all of them.
  if (collective != nullptr && member.rank == 0) AddCollective(id, collective, actions);
}

void FakeEngine::AddCollective(uint64_t id, FakeExchange* mine, std::vector<Action>* actions) {
  const std::vector<uint64_t>& ranks = cliques.at(members.at(id).clique).members;
  std::vector<FakeExchange*> parts;
  for (const uint64_t rank : ranks) {
    FakeGroup* const group = Active(rank);
    FakeExchange* const part = group == nullptr ? nullptr : FirstUndoneCollective(group);
    if (part == nullptr || part->kind != mine->kind) return;
    parts.push_back(part);
  }
  actions->push_back([this, ranks, parts] { DoCollective(ranks, parts); });
}

// NCCL would hang, or write past an end; here it is told.
void FakeEngine::Mismatch(const std::vector<uint64_t>& ranks, const std::string& what) {
  misuses.push_back(what);
  for (const uint64_t rank : ranks) members.at(rank).failure = what;
}

void FakeEngine::DoPair(uint64_t sender, FakeExchange* send, uint64_t receiver,
                        FakeExchange* receive) {
  FakeStream& from = streams.at(members.at(sender).posted.front()->stream);
  FakeStream& to = streams.at(members.at(receiver).posted.front()->stream);
  const std::string words = "transfer of " + std::to_string(send->bytes) + " bytes from rank " +
                            std::to_string(members.at(sender).rank) + " to rank " +
                            std::to_string(members.at(receiver).rank);
  if (send->bytes != receive->bytes) {
    Mismatch({sender, receiver}, words + ", which receives " + std::to_string(receive->bytes));
    return;
  }
  if (!HasAll(send->from, send->bytes, false) || !HasAll(receive->to, send->bytes, false)) {
    misuses.push_back(words + " uses memory that is not there");
    Lose(from.device, "an illegal memory access was made by a " + words);
    Lose(to.device, "an illegal memory access was made by a " + words);
    return;
  }
  std::memmove(receive->to, send->from, static_cast<size_t>(send->bytes));
  send->done = receive->done = true;
  const TimeNs begin =
      std::max({from.now, to.now, from.work.front().posted, to.work.front().posted});
  Spend(&from, begin, {.kind = FakeCost::Kind::kTransfer, .bytes = send->bytes});
  to.now = from.now;
  executed.push_back(words);
  Finish(sender);
  if (receiver != sender) Finish(receiver);
}

// Takes it from its stream once all of it is done.
void FakeEngine::Finish(uint64_t id) {
  FakeMember& member = members.at(id);
  const std::shared_ptr<FakeGroup> group = member.posted.front();
  if (!std::all_of(group->parts.begin(), group->parts.end(),
                   [](const FakeExchange& part) { return part.done; })) {
    return;
  }
  member.posted.pop_front();
  std::deque<FakeWork>& work = streams.at(group->stream).work;
  executed.push_back(work.front().words);
  work.pop_front();
}

bool FakeEngine::FitTogether(const std::vector<FakeExchange*>& parts, std::string* why) const {
  const FakeExchange& first = *parts.front();
  const auto size = static_cast<Bytes>(parts.size());
  const Bytes read = first.bytes * (ReadsAll(first.kind) ? size : 1);
  const Bytes written = first.bytes * (WritesAll(first.kind) ? size : 1);
  for (const FakeExchange* part : parts) {
    if (part->bytes != first.bytes || part->type != first.type ||
        part->reduction != first.reduction) {
      *why = "the ranks of a collective have not the same data";
      return false;
    }
    if (!HasAll(part->from, read, false) || !HasAll(part->to, written, false)) {
      *why = "a collective uses memory that is not there";
      return false;
    }
  }
  return true;
}

void FakeEngine::DoCollective(const std::vector<uint64_t>& ranks,
                              const std::vector<FakeExchange*>& parts) {
  const FakeExchange first = *parts.front();
  if (std::string why; !FitTogether(parts, &why)) {
    Mismatch(ranks, why);
    return;
  }
  // All results first, aside: what is written may be what another rank reads.
  std::vector<std::vector<std::byte>> results;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    results.push_back(ResultOf(parts, static_cast<int64_t>(rank)));
  }
  TimeNs begin = 0;
  for (const uint64_t rank : ranks) {
    const FakeStream& stream = streams.at(members.at(rank).posted.front()->stream);
    begin = std::max({begin, stream.now, stream.work.front().posted});
  }
  const Bytes moved = first.bytes * static_cast<Bytes>(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::memcpy(parts[i]->to, results[i].data(), results[i].size());
    parts[i]->done = true;
    Spend(&streams.at(members.at(ranks[i]).posted.front()->stream), begin,
          {.kind = FakeCost::Kind::kTransfer, .bytes = moved});
    Finish(ranks[i]);
  }
}

void FakeEngine::Abort(uint64_t id) {
  FakeMember& member = members.at(id);
  member.aborted = true;
  if (!member.failure) member.failure = "it was aborted";
  for (const std::shared_ptr<FakeGroup>& group : member.posted) group->ended = true;
  member.posted.clear();
}

}  // namespace spiritlevel::cuda
