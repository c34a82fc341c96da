// Legal timelines to judge, and ways to damage them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/analysis/check_timeline.h"

namespace spiritlevel {

inline std::vector<std::string> Rules(const std::vector<Finding>& findings) {
  std::set<std::string> rules;
  for (const Finding& finding : findings) rules.insert(finding.rule);
  return {rules.begin(), rules.end()};
}

inline std::string Words(const std::vector<Finding>& findings) {
  std::string words;
  for (const Finding& f : findings) words += f.rule + ": " + f.what + "\n";
  return words;
}

inline constexpr auto kParameters = static_cast<size_t>(MemoryCategory::kParameters);
inline constexpr auto kForB = static_cast<size_t>(MemoryCategory::kWaitingForB);
inline constexpr auto kForW = static_cast<size_t>(MemoryCategory::kWaitingForW);

inline constexpr TimeNs kLatency = 3;
inline constexpr Bytes kStatic = 100;
inline constexpr Bytes kActivation = 10;
inline constexpr Bytes kWeightState = 4;

// Plays orders by the dumbest program there is, to have events to judge: each op as early as its
// rank and its inputs allow; F 5 ns, B 4, W 2, BW 6, a pair 10; a barrier and an optimizer step end
// each iteration.
class Player {
 public:
  explicit Player(Orders orders) : orders_(std::move(orders)), ranks_(orders_.size()) {
    for (const auto& row : orders_) {
      for (const Op& op : row) stages_ = std::max(stages_, op.stage + 1);
    }
    for (Rank& rank : ranks_) rank.memory[kParameters] = kStatic;
  }

  std::vector<Event> Play(int iterations) {
    for (iteration_ = 0; iteration_ < iterations; ++iteration_) {
      for (Rank& rank : ranks_) rank.at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < ranks_.size(); ++r) moved |= Step(static_cast<int>(r));
      }
      End();
    }
    std::vector<Event> all;
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.at, orders_[&rank - ranks_.data()].size()) << "the test's orders can run";
      all.insert(all.end(), rank.events.begin(), rank.events.end());
    }
    return all;
  }

 private:
  using Key = std::tuple<int, int, Pass, int>;  // iteration, stage, pass, micro-batch

  struct Result {
    int rank = 0;
    TimeNs end = 0;
    int32_t message = kNone;
    Op op;
  };

  struct Rank {
    size_t at = 0;
    TimeNs clock = 0;
    MemoryByCategory memory{};
    std::vector<Event> events;
  };

  const Result* Find(int stage, Pass pass, int micro_batch) const {
    const auto found = results_.find({iteration_, stage, pass, micro_batch});
    return found == results_.end() ? nullptr : &found->second;
  }

  const Result* FindBackward(int stage, int micro_batch) const {
    const Result* fused = Find(stage, Pass::kBW, micro_batch);
    return fused != nullptr ? fused : Find(stage, Pass::kB, micro_batch);
  }

  // False: an input is missing.
  bool Inputs(const Op& op, std::vector<const Result*>& inputs) const {
    if (op.pass == Pass::kF && op.stage > 0) {
      inputs.push_back(Find(op.stage - 1, Pass::kF, op.micro_batch));
    }
    if (op.pass == Pass::kB || op.pass == Pass::kBW) {
      inputs.push_back(Find(op.stage, Pass::kF, op.micro_batch));
      if (op.stage + 1 < stages_) inputs.push_back(FindBackward(op.stage + 1, op.micro_batch));
    }
    if (op.pass == Pass::kW) inputs.push_back(Find(op.stage, Pass::kB, op.micro_batch));
    return std::count(inputs.begin(), inputs.end(), nullptr) == 0;
  }

  static TimeNs Duration(Pass pass) {
    switch (pass) {
      case Pass::kF:
        return 5;
      case Pass::kB:
        return 4;
      case Pass::kW:
        return 2;
      case Pass::kBW:
        return 6;
    }
    return 0;
  }

  bool Step(int r) {
    Rank& rank = ranks_[r];
    const std::vector<Op>& row = orders_[r];
    if (rank.at == row.size()) return false;
    const bool pair = row[rank.at].overlaps_next;
    std::vector<Op> ops = {row[rank.at]};
    if (pair) ops.push_back(row[rank.at + 1]);
    std::vector<const Result*> inputs;
    for (const Op& op : ops) {
      if (!Inputs(op, inputs)) return false;
    }
    rank.at += ops.size();
    Run(r, ops, inputs);
    return true;
  }

  void Run(int r, const std::vector<Op>& ops, const std::vector<const Result*>& inputs) {
    Rank& rank = ranks_[r];
    Event e = {.iteration = iteration_, .rank = r, .parameter_version = iteration_};
    e.kind = ops.size() == 2 ? NodeKind::kPair : NodeKind::kOp;
    e.op = ops[0];
    if (ops.size() == 2) e.second = ops[1];
    std::vector<Event> messages;
    for (const Result* input : inputs) {
      const bool arrives = input->rank != r;
      e.ready = std::max(e.ready, input->end + (arrives ? kLatency : 0));
      if (arrives) messages.push_back(MessageEvent(NodeKind::kReceive, r, *input, input->rank));
    }
    e.issue = e.start = std::max(e.ready, rank.clock);
    e.end = e.start + (ops.size() == 2 ? 10 : Duration(ops[0].pass));
    ChangeMemory(ops, e);
    rank.clock = e.end;
    for (const Op& op : ops) Release(r, op, e.end, messages);
    rank.events.push_back(e);
    rank.events.insert(rank.events.end(), messages.begin(), messages.end());
  }

  void Release(int r, const Op& op, TimeNs end, std::vector<Event>& messages) {
    Result result = {.rank = r, .end = end, .message = kNone, .op = op};
    const int next = op.pass == Pass::kF ? op.stage + 1 : op.stage - 1;
    if (op.pass != Pass::kW && next >= 0 && next < stages_ && RankOf(next, op.micro_batch) != r) {
      result.message = next_message_++;
      messages.push_back(MessageEvent(NodeKind::kSend, r, result, RankOf(next, op.micro_batch)));
    }
    results_[{iteration_, op.stage, op.pass, op.micro_batch}] = result;
  }

  Event MessageEvent(NodeKind kind, int rank, const Result& result, int peer) const {
    Event e = {.kind = kind, .iteration = iteration_, .rank = rank, .op = result.op};
    e.parameter_version = iteration_;
    e.start = result.end;
    e.end = result.end + (kind == NodeKind::kReceive ? kLatency : 0);
    e.message = result.message;
    e.peer = peer;
    e.bytes = 1000 + result.op.stage;
    return e;
  }

  int RankOf(int stage, int micro_batch) const {
    for (size_t r = 0; r < orders_.size(); ++r) {
      for (const Op& op : orders_[r]) {
        if (op.stage == stage && op.micro_batch == micro_batch) return static_cast<int>(r);
      }
    }
    return kNone;
  }

  void ChangeMemory(const std::vector<Op>& ops, Event& e) {
    MemoryByCategory& memory = ranks_[e.rank].memory;
    e.before = memory;
    for (const Op& op : ops) {
      if (op.pass == Pass::kF) memory[kForB] += kActivation;
    }
    e.during = memory;
    e.live = Total(memory);
    for (const Op& op : ops) {
      if (op.pass == Pass::kB || op.pass == Pass::kBW) memory[kForB] -= kActivation;
      if (op.pass == Pass::kB) memory[kForW] += kWeightState;
      if (op.pass == Pass::kW) memory[kForW] -= kWeightState;
    }
    e.after = memory;
  }

  void End() {
    TimeNs together = 0;
    for (const Rank& rank : ranks_) together = std::max(together, rank.clock);
    together += 7;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      Event e = {.kind = NodeKind::kCollective, .iteration = iteration_};
      e.rank = static_cast<int32_t>(r);
      e.parameter_version = e.collective = iteration_;
      e.ready = e.issue = rank.clock;
      e.start = together - 7;
      e.end = together;
      ChangeMemory({}, e);
      rank.events.push_back(e);
      e.kind = NodeKind::kOptimizer;
      e.collective = kNone;
      e.parameter_version = iteration_ + 1;
      e.ready = e.issue = e.start = together;
      e.end = rank.clock = together + 9;
      rank.events.push_back(e);
    }
  }

  Orders orders_;
  int stages_ = 0;
  int iteration_ = 0;
  int32_t next_message_ = 0;
  std::vector<Rank> ranks_;
  std::map<Key, Result> results_;
};

inline std::vector<Event> Play(std::string_view orders, int iterations = 1) {
  return Player(ParseOrders(orders)).Play(iterations);
}

inline constexpr std::string_view k1F1B =
    "0F0 0F1 0BW0 0F2 0BW1 0BW2\n"
    "1F0 1BW0 1F1 1BW1 1F2 1BW2\n";
inline constexpr std::string_view kZb =
    "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2\n"
    "1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2\n";
inline constexpr std::string_view kV =
    "0F0 3F0 3B0 0F1 3F1 3B1 3W0 3W1 0B0 0B1 0W0 0W1\n"
    "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 2W1 1W0 1W1\n";
inline constexpr std::string_view kPairs =
    "0F0 0F1 (0F2;0BW0) 0BW1 0BW2\n"
    "1F0 (1F1;1BW0) 1BW1 1F2 1BW2\n";
inline constexpr std::string_view kBidirectional =
    "0F0 1F1 1BW1 0BW0\n"
    "0F1 1F0 1BW0 0BW1\n";
inline constexpr std::string_view kFourRanks =
    "0F0 0F1 0BW0 0BW1\n"
    "1F0 1F1 1BW0 1BW1\n"
    "2F0 2F1 2BW0 2BW1\n"
    "3F0 3F1 3BW0 3BW1\n";

inline constexpr std::string_view kWorlds[] = {k1F1B, kZb, kV, kPairs, kBidirectional, kFourRanks};

inline std::vector<Finding> Judge(const std::vector<Event>& events) {
  return CheckTimeline(events, std::nullopt);
}

inline bool SameOp(const Op& a, const Op& b) {
  return a.stage == b.stage && a.pass == b.pass && a.micro_batch == b.micro_batch;
}

inline Op Read(std::string_view text) { return ParseOrders(text)[0][0]; }

// Of the first iteration.
inline Event& FindNode(std::vector<Event>& events, std::string_view op) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return (e.kind == NodeKind::kOp || e.kind == NodeKind::kPair) && SameOp(e.op, Read(op));
  });
  EXPECT_NE(found, events.end()) << op;
  return *found;
}

inline Event& FindEnd(std::vector<Event>& events, NodeKind kind, std::string_view op) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return e.kind == kind && SameOp(e.op, Read(op));
  });
  EXPECT_NE(found, events.end()) << op;
  return *found;
}

inline Event& FindTail(std::vector<Event>& events, NodeKind kind, int rank, int iteration = 0) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Event& e) {
    return e.kind == kind && e.rank == rank && e.iteration == iteration;
  });
  EXPECT_NE(found, events.end()) << "rank " << rank << ", iteration " << iteration;
  return *found;
}

inline void Remove(std::vector<Event>& events, const Event& event) {
  events.erase(events.begin() + (&event - events.data()));
}

inline void ForgetMemory(std::vector<Event>& events) {
  for (Event& e : events) {
    e.before = e.during = e.after = {};
    e.live = 0;
  }
}

}  // namespace spiritlevel
