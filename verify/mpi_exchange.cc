#include "verify/mpi_exchange.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "verify/clock.h"
#include "verify/words.h"

namespace spiritlevel {
namespace {

// Before the bytes of each message: which one it is.
using Header = int64_t;

}  // namespace

MpiExchange::MpiExchange(const RunSetting& setting, MPI_Comm comm, int index, TimeNs clock_offset)
    : setting_(setting),
      plan_(setting.plan),
      program_(plan_.program()),
      comm_(comm),
      index_(index),
      rank_(index % program_.num_ranks()),
      replica_(index / program_.num_ranks()),
      num_ranks_(program_.num_ranks()),
      num_messages_(static_cast<int>(program_.messages().size())),
      num_collectives_(static_cast<int>(program_.collectives().size())),
      clock_offset_(clock_offset),
      wait_limit_(WaitLimit()),
      waits_for_(plan_.waits_for().begin(), plan_.waits_for().end()),
      head_(waits_for_.size(), 0),
      batch_end_(program_.batches().size(), 0),
      messages_(program_.messages().size()),
      has_sum_(program_.collectives().size(), false) {
  for (const Batch& batch : program_.batches()) {
    open_.push_back(static_cast<int32_t>(batch.halves.size()));
  }
  timeline_.nodes.assign(program_.nodes().size(), {});
  timeline_.messages.assign(program_.messages().size(), {});
  timeline_.reductions.assign(program_.reductions().size(), {});
  for (const Collective& collective : program_.collectives()) {
    for (const NodeId member : collective.members) sums_left_ += plan_.rank_of(member) == rank_;
  }
  for (NodeId id = program_.num_lane_nodes(); id < program_.num_nodes(); ++id) {
    const bool in_batch = program_.is_half(id) && plan_.batch_of(id) != kNone;
    if (plan_.rank_of(id) == rank_ && !in_batch && waits_for_[id] == 0) reached_.push_back(id);
  }
}

// What is still on its way in a run that has failed is left to MPI, which may write to it or read
// it until the job ends.
MpiExchange::~MpiExchange() {
  for (Sending& sending : sending_) {
    int done = 0;
    MPI_Test(&sending.request, &done, MPI_STATUS_IGNORE);
    if (done == 0) new std::vector<std::byte>(std::move(sending.header_and_bytes));
  }
}

TimeNs MpiExchange::WaitLimit() const {
  if (setting_.options.stall_limit) return *setting_.options.stall_limit;
  // A rank that waits knows nothing of the others but that they need not take longer than this.
  TimeNs longest = 0;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    TimeNs sum = 0;
    for (NodeId id = program_.rank_begin(rank); id < program_.rank_end(rank); ++id) {
      const int32_t cost = program_.nodes()[id].cost;
      if (cost != kNone) sum += program_.costs()[cost].duration;
    }
    longest = std::max(longest, sum);
  }
  constexpr TimeNs kBeyond = 10'000'000'000;
  return kBeyond + 4 * longest;
}

void MpiExchange::ThrowIfStopped() const {
  if (stopping_.load(std::memory_order_relaxed)) throw Stopped();
}

TimeNs MpiExchange::Meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm_, &request);
  const TimeNs since = Now();
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    LookForAbort();
    if (done == 0) ThrowIfStopped();  // a collective cannot be taken back: it is left to MPI
    if (done == 0 && Now() - since > setting_.options.setup_limit) {
      Fail(FailureKind::kStalled, kNone, "others are not ready to begin");
    }
  }
  began_ = Now();
  Advance();
  return began_;
}

TimeNs MpiExchange::Wait(NodeId node, Servant& servant) {
  for (const TimeNs since = Now();;) {
    Progress(servant);
    if (waits_for_[node] == 0) return head_[node];
    WaitATurn(since, node);
  }
}

Payload MpiExchange::Take(MessageId message) {
  SPIRITLEVEL_CHECK(std::exchange(messages_[message].is_there, false),
                    "a message is taken once, when it is there");
  return std::move(messages_[message].payload);
}

void MpiExchange::End(NodeId node, const NodeTimes& times, std::span<Outgoing> outputs) {
  for (Outgoing& output : outputs) messages_[output.message].payload = std::move(output.payload);
  timeline_.nodes[static_cast<size_t>(node)] = times;
  last_ended_ = node;
  Finish(node, times.end);
  Advance();
}

NodeTimes MpiExchange::JoinAndWait(NodeId node, TimeNs head, Servant& servant) {
  Payload contribution = servant.Contribute(node);
  // Before others can have it: who is put to sleep behind the sending would have come too late.
  const TimeNs joined = std::max(head, Now());
  Join(node, std::move(contribution));
  for (const TimeNs since = Now();;) {
    Progress(servant);
    if (has_sum_[plan_.collective_of(node)]) break;
    WaitATurn(since, node);
  }
  // The last to join is not known here; whoever puts the ranks' times together sets it right.
  return {.start = joined, .end = joined, .ready = joined};
}

void MpiExchange::ServeOut(Servant& servant) {
  for (const TimeNs since = Now();;) {
    Progress(servant);
    if (sums_left_ == 0 && sending_.empty()) break;
    WaitATurn(since, kNone);
  }
  const int others = setting_.num_indices() - 1;
  for (int other = 0; other <= others; ++other) {
    if (other != index_) Post(other, LastTag(), 0, {}, false, kNone);
  }
  const TimeNs since = Now();
  for (int come = 0; come < others || !sending_.empty();) {
    LookForAbort();
    ThrowIfStopped();
    ProgressSide();  // who is not here yet may wait for it to arrive
    ProgressSends();
    for (int other = 0; other <= others; ++other) come += TakeLastOf(other);
    if (come < others || !sending_.empty()) WaitATurn(since, kNone);
  }
}

// Messages of one sender do not overtake each other, and all that was to come has been asked for:
// what stands before the last one must not be.
int MpiExchange::TakeLastOf(int other) {
  int is_there = 0;
  MPI_Status status;
  MPI_Iprobe(other, MPI_ANY_TAG, comm_, &is_there, &status);
  if (other == index_ || is_there == 0) return 0;
  if (status.MPI_TAG == LastTag()) return PollFor(other, LastTag(), 0) ? 1 : 0;
  if (status.MPI_TAG >= num_messages_) return 0;
  const Op& op = setting_.routes.op_of(status.MPI_TAG);
  Fail(FailureKind::kWrongMessage, program_.messages()[status.MPI_TAG].to,
       fmt::format("{} of rank {}, message {}, arrives a second time", ToString(op),
                   other % num_ranks_, status.MPI_TAG));
  throw Stopped();
}

int MpiExchange::PeerOf(NodeId half) const {
  const Link& link = program_.links()[program_.messages()[program_.message_of(half)].link];
  return replica_ * num_ranks_ + (program_.is_send(half) ? link.to_rank : link.from_rank);
}

std::vector<int> MpiExchange::IndicesOf(int32_t collective) const {
  const bool spans = plan_.spans_replicas(collective);
  std::vector<int> indices;
  for (int r = 0; r < setting_.options.replicas; ++r) {
    if (!spans && r != replica_) continue;
    for (const NodeId member : program_.collectives()[collective].members) {
      indices.push_back(r * num_ranks_ + plan_.rank_of(member));
    }
  }
  return indices;
}

void MpiExchange::Finish(NodeId node, TimeNs at) {
  for (const NodeId follower : plan_.followers(node)) Release(follower, at);
}

void MpiExchange::Release(NodeId node, TimeNs at) {
  head_[node] = std::max(head_[node], at);
  if (--waits_for_[node] == 0 && node >= program_.num_lane_nodes()) reached_.push_back(node);
}

void MpiExchange::Advance() {
  while (!reached_.empty()) {
    const NodeId node = reached_.back();
    reached_.pop_back();
    ReachHead(node);
  }
}

void MpiExchange::ReachHead(NodeId node) {
  if (program_.is_reduction(node)) {
    to_contribute_.push_back(node);
  } else if (program_.is_batch(node)) {
    const std::vector<NodeId>& halves = program_.batches()[node - program_.batch_node(0)].halves;
    for (const NodeId half : halves) head_[half] = head_[node];
    for (const NodeId half : halves) StartHalf(half);
  } else {
    StartHalf(node);
  }
}

const Fault* MpiExchange::FaultOf(MessageId message, FaultKind kind) const {
  for (const Fault& fault : setting_.options.faults) {
    if (fault.kind == kind && fault.replica == replica_ &&
        fault.node == program_.messages()[message].from) {
      return &fault;
    }
  }
  return nullptr;
}

void MpiExchange::StartHalf(NodeId half) {
  const MessageId m = program_.message_of(half);
  if (!program_.is_send(half)) {
    receiving_.push_back(half);
    // When it began to wait: under rendezvous the message does not start before.
    timeline_.messages[static_cast<size_t>(m)].start = program_.rendezvous() ? head_[half] : 0;
    return;
  }
  timeline_.messages[static_cast<size_t>(m)].start = head_[half];
  const Payload payload = std::move(messages_[m].payload);
  const bool waits = program_.rendezvous();
  if (FaultOf(m, FaultKind::kLoseMessage) != nullptr) return FinishHalf(half, Now());
  if (const Fault* delay = FaultOf(m, FaultKind::kDelayMessage); delay != nullptr) {
    WaitUntil(Now() + delay->delay, stopping_);
  }
  const bool misnamed = FaultOf(m, FaultKind::kWrongMessage) != nullptr;
  Post(PeerOf(half), m, misnamed ? m + 1 : m, payload.bytes(), waits, waits ? half : kNone);
  if (FaultOf(m, FaultKind::kDoubleMessage) != nullptr) {
    Post(PeerOf(half), m, m, payload.bytes(), false, kNone);
  }
  if (!waits) FinishHalf(half, Now());
}

void MpiExchange::FinishHalf(NodeId half, TimeNs at) {
  Finish(half, at);
  const int32_t batch = plan_.batch_of(half);
  if (batch == kNone) return;
  batch_end_[batch] = std::max(batch_end_[batch], at);
  if (--open_[batch] == 0) Finish(program_.batch_node(batch), batch_end_[batch]);
}

void MpiExchange::Post(int to, int tag, int64_t number, std::span<const std::byte> bytes,
                       bool synchronous, NodeId half) {
  const Header header = number;
  Sending& sending = sending_.emplace_back();
  sending.half = half;
  sending.header_and_bytes.resize(sizeof(header) + bytes.size());
  std::memcpy(sending.header_and_bytes.data(), &header, sizeof(header));
  if (!bytes.empty()) {
    std::memcpy(sending.header_and_bytes.data() + sizeof(header), bytes.data(), bytes.size());
  }
  SPIRITLEVEL_CHECK(
      sending.header_and_bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max()),
      "a message is below 2 GiB");
  const auto send = synchronous ? MPI_Issend : MPI_Isend;
  send(sending.header_and_bytes.data(), static_cast<int>(sending.header_and_bytes.size()), MPI_BYTE,
       to, tag, comm_, &sending.request);
}

std::optional<Payload> MpiExchange::PollFor(int from, int tag, int64_t number) {
  int is_there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(from, tag, comm_, &is_there, &message, &status);
  if (is_there == 0) return std::nullopt;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  std::vector<std::byte> all(static_cast<size_t>(bytes));
  MPI_Mrecv(all.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  Header header = 0;
  SPIRITLEVEL_CHECK(all.size() >= sizeof(header), "a message says which it is");
  std::memcpy(&header, all.data(), sizeof(header));
  if (header != number) {
    Fail(
        FailureKind::kWrongMessage, tag < num_messages_ ? program_.messages()[tag].to : kNone,
        fmt::format("message {} of rank {} arrives as message {}", tag, from % num_ranks_, header));
    throw Stopped();
  }
  return Payload::CopyOf(std::span(all).subspan(sizeof(header)));
}

void MpiExchange::Join(NodeId member, Payload contribution) {
  const int32_t collective = plan_.collective_of(member);
  const std::vector<int> indices = IndicesOf(collective);
  const TimeNs joined = Now();  // before others can have it, as above
  Joining joining{.member = member};
  joining.contributions.resize(indices.size());
  joining.is_there.resize(indices.size(), false);
  joining.missing = static_cast<int>(indices.size()) - 1;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] != index_) {
      Post(indices[i], TagOf(collective), collective, contribution.bytes(), false, kNone);
    }
  }
  const auto own = std::find(indices.begin(), indices.end(), index_) - indices.begin();
  joining.contributions[static_cast<size_t>(own)] = std::move(contribution);
  joining.is_there[static_cast<size_t>(own)] = true;
  if (program_.is_reduction(member)) {
    timeline_.reductions[static_cast<size_t>(member - program_.reduction_node(0))] = {
        .start = joined, .end = joined, .ready = head_[member]};
  }
  joining_.push_back(std::move(joining));
}

void MpiExchange::Progress(Servant& servant) {
  ProgressLanes();
  // Until there is nothing to do: what is to be contributed is, before a later node changes it.
  do {
    while (!to_contribute_.empty()) {
      const NodeId member = to_contribute_.front();
      to_contribute_.pop_front();
      Join(member, servant.Contribute(member));
    }
    ProgressSums(servant);
    Advance();
  } while (!to_contribute_.empty());
}

void MpiExchange::ProgressLanes() {
  LookForAbort();
  ThrowIfStopped();
  ProgressSide();
  ProgressSends();
  ProgressReceives();
  Advance();
}

// Whoever it is for, and whether or not it will be asked for: its sender waits for its arrival at
// the end of the run.
void MpiExchange::ProgressSide() {
  for (int topic = 0; topic < kTopics; ++topic) {
    int is_there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, TagOfTopic(topic), comm_, &is_there, &status);
    if (is_there == 0) continue;
    std::optional<Payload> payload = PollFor(status.MPI_SOURCE, TagOfTopic(topic), topic);
    if (!payload) continue;
    side_[static_cast<size_t>(topic)].push_back(
        {.from = status.MPI_SOURCE, .payload = std::move(*payload)});
    --topic;  // until there is none
  }
}

// Synchronously, so that it has arrived when the run ends.
void MpiExchange::Send(int to, int topic, std::span<const std::byte> bytes) {
  SPIRITLEVEL_CHECK(to != index_ && topic >= 0 && topic < kTopics, "to another, on a topic");
  Post(to, TagOfTopic(topic), topic, bytes, true, kNone);
}

std::optional<SideMessage> MpiExchange::Poll(int topic) {
  ProgressLanes();
  std::deque<SideMessage>& come = side_.at(static_cast<size_t>(topic));
  if (come.empty()) return std::nullopt;
  SideMessage first = std::move(come.front());
  come.pop_front();
  return first;
}

SideMessage MpiExchange::Receive(int topic) {
  for (const TimeNs since = Now();;) {
    if (std::optional<SideMessage> message = Poll(topic)) return std::move(*message);
    const TimeNs waited = Now() - since;
    if (waited > wait_limit_) {
      const NodeId node = last_ended_ == kNone ? program_.rank_begin(rank_) : last_ended_ + 1;
      FailStalled(node, kNone,
                  fmt::format("rank {} waits in {} for what other ranks have for it", rank_,
                              NameWithIteration(plan_, setting_.routes, node)),
                  waited);
    }
    if (waited > setting_.patience) ::sched_yield();
  }
}

void MpiExchange::ProgressSends() {
  for (size_t i = 0; i < sending_.size();) {
    int done = 0;
    MPI_Test(&sending_[i].request, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      ++i;
      continue;
    }
    const NodeId half = sending_[i].half;
    sending_.erase(sending_.begin() + static_cast<ptrdiff_t>(i));
    if (half != kNone) FinishHalf(half, Now());
  }
}

void MpiExchange::ProgressReceives() {
  for (size_t i = 0; i < receiving_.size();) {
    const NodeId half = receiving_[i];
    const MessageId m = program_.message_of(half);
    std::optional<Payload> payload = PollFor(PeerOf(half), m, m);
    if (!payload) {
      ++i;
      continue;
    }
    receiving_.erase(receiving_.begin() + static_cast<ptrdiff_t>(i));
    messages_[m].payload = std::move(*payload);
    messages_[m].is_there = true;
    messages_[m].arrival = Now();
    timeline_.messages[static_cast<size_t>(m)].arrival = messages_[m].arrival;
    FinishHalf(half, messages_[m].arrival);
  }
}

void MpiExchange::ProgressSums(Servant& servant) {
  for (size_t i = 0; i < joining_.size();) {
    Joining& joining = joining_[i];
    const int32_t collective = plan_.collective_of(joining.member);
    const std::vector<int> indices = IndicesOf(collective);
    for (size_t k = 0; k < indices.size() && joining.missing > 0; ++k) {
      if (joining.is_there[k]) continue;
      std::optional<Payload> payload = PollFor(indices[k], TagOf(collective), collective);
      if (!payload) continue;
      joining.contributions[k] = std::move(*payload);
      joining.is_there[k] = true;
      --joining.missing;
    }
    if (joining.missing > 0) {
      ++i;
      continue;
    }
    const Joining whole = std::move(joining);
    joining_.erase(joining_.begin() + static_cast<ptrdiff_t>(i));
    std::vector<std::span<const std::byte>> all;
    for (const Payload& each : whole.contributions) all.push_back(each.bytes());
    servant.Combine(whole.member, all);
    --sums_left_;
    has_sum_[collective] = true;
    if (program_.is_reduction(whole.member)) Finish(whole.member, Now());
  }
}

void MpiExchange::WaitATurn(TimeNs since, NodeId node) {
  ThrowIfStopped();
  const TimeNs waited = Now() - since;
  if (waited > wait_limit_) {
    int peer = kNone;
    const std::string why = WhyWaiting(node, &peer);
    FailStalled(node, peer, why, waited);
  }
  if (waited > setting_.patience) ::sched_yield();
}

void MpiExchange::FailStalled(NodeId node, int peer, const std::string& why, TimeNs waited) {
  MpiFailure failure{.is_set = 1,
                     .kind = static_cast<int64_t>(FailureKind::kStalled),
                     .index = peer == kNone ? index_ : peer,
                     .peer = index_,
                     .node = node,
                     .time = Now() + clock_offset_};
  const std::string text = fmt::format("{}, and has done so for {}", why, FormatTime(waited));
  std::strncpy(failure.message, text.c_str(), sizeof(failure.message) - 1);
  Record(failure);
  throw Stopped();
}

std::string MpiExchange::WhyWaiting(NodeId node, int* peer) const {
  if (node == kNone) return fmt::format("rank {} waits behind its last node for others", rank_);
  const std::string begin = fmt::format("rank {} waits before {}", rank_,
                                        NameWithIteration(plan_, setting_.routes, node));
  for (const MessageId m : program_.nodes()[node].inputs) {
    if (m == kNone || messages_[m].is_there) continue;
    *peer = PeerOf(program_.receive_node(m));
    return fmt::format("{} for {} of rank {}", begin, ToString(setting_.routes.op_of(m)),
                       *peer % num_ranks_);
  }
  if (!receiving_.empty()) {
    *peer = PeerOf(receiving_.front());
    return fmt::format("{} for {}", begin, NameOf(plan_, setting_.routes, receiving_.front()));
  }
  for (const Joining& joining : joining_) {
    const std::vector<int> indices = IndicesOf(plan_.collective_of(joining.member));
    for (size_t i = 0; i < indices.size(); ++i) {
      if (joining.is_there[i]) continue;
      *peer = indices[i];
      return fmt::format("{} for the part of rank {} in {}", begin, *peer % num_ranks_,
                         NameOf(plan_, setting_.routes, joining.member));
    }
  }
  return begin;
}

void MpiExchange::Fail(FailureKind kind, NodeId node, std::string_view what) noexcept {
  if (failure_.is_set != 0) return;
  MpiFailure failure{.is_set = 1,
                     .kind = static_cast<int64_t>(kind),
                     .index = index_,
                     .peer = setting_.num_indices() == 1 ? kNone
                             : index_ == 0               ? 1
                                                         : index_ - 1,
                     .node = node,
                     .time = Now() + clock_offset_};
  const std::string where = node == kNone ? "before its first op"
                                          : "in " + NameWithIteration(plan_, setting_.routes, node);
  const std::string text = fmt::format("rank {} fails {}: {}; rank {} goes no further", rank_,
                                       where, what, failure.peer);
  std::strncpy(failure.message, text.c_str(), sizeof(failure.message) - 1);
  Record(failure);
}

// To all others, who find it wherever they wait.
void MpiExchange::Record(const MpiFailure& failure) {
  failure_ = failure;
  stopping_.store(true);
  for (int other = 0; other < setting_.num_indices(); ++other) {
    if (other == index_) continue;
    const auto* bytes = reinterpret_cast<const std::byte*>(&failure_);
    Post(other, AbortTag(), 0, {bytes, sizeof(failure_)}, false, kNone);
  }
}

void MpiExchange::LookForAbort() {
  if (failure_.is_set != 0) return;
  int is_there = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, AbortTag(), comm_, &is_there, &status);
  if (is_there == 0) return;
  const std::optional<Payload> payload = PollFor(status.MPI_SOURCE, AbortTag(), 0);
  if (!payload || payload->size() != sizeof(failure_)) return;
  std::memcpy(&failure_, payload->bytes().data(), sizeof(failure_));
  stopping_.store(true);
}

}  // namespace spiritlevel
