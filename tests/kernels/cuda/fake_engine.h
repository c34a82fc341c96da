// FakeEngine: what the fake's "devices" have been asked to do, and the order in which they do it:
// any that streams, events and communicators permit, by a seed.
//
// Each stream is a queue. What is at its head can be done, unless it waits: for a Record() that is
// not done yet, or for a peer that has not come. One step does one such piece of work:
//
//   stream 1   [launch fill] [record e1]        <- the fill, or
//   stream 2   [copy] [wait e1] [launch add]    <- the copy; the add never before the fill
//
// Communicators: what is posted between two ranks on one communicator is done in the order in which
// each of them posted it, whatever streams it is on. A send is done together with its receive, when
// both are at the heads of their streams; a collective when all of its ranks have come. What has no
// partner waits for ever, which IsStuck() tells.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/layer.h"
#include "tests/kernels/cuda/fake_races.h"

namespace spiritlevel::cuda {

// What is given a duration in virtual time.
struct FakeCost {
  enum class Kind { kLaunch, kProduct, kCopy, kTransfer };
  Kind kind = Kind::kLaunch;
  const Call* call = nullptr;  // of a launch and a product
  int algorithm = 0;           // of a product
  Bytes bytes = 0;             // of a copy and a transfer
};

// One Record() of an event.
struct FakeMark {
  bool done = false;
  TimeNs at = 0;
  VectorClock before;  // what it is behind
};

enum class FakeExchangeKind { kSend, kReceive, kAllReduce, kReduceScatter, kAllGather, kAllToAll };

struct FakeExchange {
  FakeExchangeKind kind = FakeExchangeKind::kSend;
  const void* from = nullptr;
  void* to = nullptr;
  Bytes bytes = 0;  // of a rank's part, where data is spread
  int peer = -1;
  ElementType type = ElementType::kFloat32;  // where it is added up
  Reduction reduction = Reduction::kSum;
  bool done = false;

  bool is_collective() const {
    return kind != FakeExchangeKind::kSend && kind != FakeExchangeKind::kReceive;
  }
};

// What one rank posted on one communicator as one.
struct FakeGroup {
  uint64_t communicator = 0;
  uint64_t stream = 0;
  std::vector<FakeExchange> parts;
  bool ended = false;  // by an abort
};

struct FakeCall {
  Call call;
  int algorithm = 0;
};
struct FakeCopy {
  void* to = nullptr;
  const void* from = nullptr;
  Bytes bytes = 0;
};
struct FakeRecord {
  std::shared_ptr<FakeMark> mark;
};
struct FakeWait {
  std::shared_ptr<FakeMark> mark;
};

struct FakeWork {
  std::variant<FakeCall, FakeCopy, FakeRecord, FakeWait, std::shared_ptr<FakeGroup>> what;
  std::string words;
  TimeNs posted = 0;
};

struct FakeStream {
  int device = 0;
  uint64_t partition = 0;
  bool high_priority = false;
  std::deque<FakeWork> work;
  TimeNs now = 0;
  bool stalled = false;
};

// A rank's end of a communicator.
struct FakeMember {
  std::string clique;
  int rank = 0;
  int device = 0;
  std::deque<std::shared_ptr<FakeGroup>> posted;
  bool aborted = false;
  std::optional<std::string> failure;
};

struct FakeClique {
  std::vector<uint64_t> members;  // by rank; 0: has not joined
};

struct FakeBlock {
  Bytes bytes = 0;
  int device = -1;  // -1: the host
};

class FakeEngine {
 public:
  FakeEngine(uint64_t seed, std::function<TimeNs(const FakeCost&)> duration)
      : random_(seed), duration_(std::move(duration)) {}

  // One piece of work, or one pair of an exchange. False if there is none that can be done.
  bool Step();
  bool IsStuck();           // something is left, and none of it can be done
  std::string WhatWaits();  // the heads of all queues
  void Post(uint64_t stream, FakeWork work);
  void Abort(uint64_t communicator);
  void BreakLaunch(int nth) { launches_to_break_ = nth; }
  uint64_t Random(uint64_t below) { return random_() % below; }

  std::map<uint64_t, FakeStream> streams;
  std::map<uint64_t, FakeMember> members;
  std::map<std::string, FakeClique> cliques;
  std::map<uintptr_t, FakeBlock> blocks;  // live ones, by address
  std::map<int, std::string> lost;        // devices, and why
  std::vector<std::string> executed;      // in the order in which it was done
  std::vector<std::string> misuses;

 private:
  using Action = std::function<void()>;

  std::vector<Action> Actions();
  void AddExchanges(uint64_t member, FakeGroup* group, std::vector<Action>* actions);
  void AddCollective(uint64_t member, FakeExchange* part, std::vector<Action>* actions);
  FakeGroup* Active(uint64_t member);  // what it has at the head of a stream, to be done now
  void DoHead(uint64_t stream);
  void Do(uint64_t stream, const FakeCall& call, const std::string& words);
  void Do(uint64_t stream, const FakeCopy& copy, const std::string& words);
  void DoPair(uint64_t sender, FakeExchange* send, uint64_t receiver, FakeExchange* receive);
  void DoCollective(const std::vector<uint64_t>& ranks, const std::vector<FakeExchange*>& parts);
  bool FitTogether(const std::vector<FakeExchange*>& parts, std::string* why) const;
  void Finish(uint64_t member);
  bool HasAll(const void* data, Bytes bytes, bool plain_host_too) const;
  void Lose(int device, const std::string& why) { lost.emplace(device, why); }
  void Spend(FakeStream* stream, TimeNs from, const FakeCost& cost);
  void Mismatch(const std::vector<uint64_t>& ranks, const std::string& what);

  std::mt19937_64 random_;
  std::function<TimeNs(const FakeCost&)> duration_;
  int launches_to_break_ = 0;  // the one that is this many from now; 0: none
};

}  // namespace spiritlevel::cuda
