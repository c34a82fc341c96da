#include "sim/analysis/check_dropped.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

namespace spiritlevel::check {
namespace {

using OpKey = std::tuple<int32_t, int, int32_t>;  // iteration, stage, micro-batch; all are forwards
using RankedOpKey = std::tuple<int32_t, int, int32_t, int32_t>;  // and rank

// Few ops are ever dropped, so maps serve.
class DroppedFlow {
 public:
  DroppedFlow(const TimelineRecords& dropped, FindingList& findings)
      : dropped_(dropped), findings_(findings) {}

  void Check(const std::vector<OpRecord>& kept) {
    for (const OpRecord& op : dropped_.ops) {
      if (!ops_.try_emplace(KeyOf(op.iteration, op.op), &op).second) Add(op, "runs twice");
    }
    MatchMessages();
    for (const OpRecord& op : dropped_.ops) CheckInput(op);
    CheckThatAllRunAgain(kept);
  }

 private:
  struct Transfer {
    const MessageEnd* send = nullptr;
    const MessageEnd* receive = nullptr;
  };

  static OpKey KeyOf(int32_t iteration, const Op& op) {
    return {iteration, op.stage, op.micro_batch};
  }

  void Add(const OpRecord& op, const std::string& what) {
    findings_.Add("rejection", [&] {
      return fmt::format("rank {}: {} of iteration {}, to be dropped, {}", op.rank, ToString(op.op),
                         op.iteration, what);
    });
  }

  void MatchMessages() {
    std::map<int32_t, Transfer> transfers;
    bool twice = false;
    for (const MessageEnd& end : dropped_.message_ends) {
      const MessageEnd*& place = end.receives ? transfers[end.id].receive : transfers[end.id].send;
      twice |= place != nullptr;
      place = &end;
    }
    if (twice) {
      findings_.Add("rejection", [] { return std::string("a dropped message has an end twice"); });
    }
    for (const auto& [id, transfer] : transfers) {
      const std::string wrong = WrongWith(transfer);
      if (!wrong.empty()) {
        findings_.Add("rejection", [&, number = id] {
          return fmt::format("message {}, to be dropped, {}", number, wrong);
        });
      }
      if (transfer.receive == nullptr) continue;
      const MessageEnd& end = *transfer.receive;
      arrivals_[std::tuple_cat(KeyOf(end.iteration, end.op), std::tuple(end.rank))] = &end;
    }
  }

  std::string WrongWith(const Transfer& transfer) const {
    if (transfer.send == nullptr) return "has no send";
    if (transfer.receive == nullptr) return "has no receive";
    const MessageEnd& send = *transfer.send;
    const MessageEnd& receive = *transfer.receive;
    if (send.peer != receive.rank || receive.peer != send.rank || send.bytes != receive.bytes ||
        send.iteration != receive.iteration || !(send.op == receive.op)) {
      return fmt::format("is one thing on rank {} and another on rank {}", send.rank, receive.rank);
    }
    if (receive.end < send.start) return "arrives before it leaves";
    const auto producer = ops_.find(KeyOf(send.iteration, send.op));
    if (producer == ops_.end() || producer->second->rank != send.rank) {
      return fmt::format("carries what rank {} has not made", send.rank);
    }
    return send.start < producer->second->end ? "leaves before it is made" : "";
  }

  void CheckInput(const OpRecord& op) {
    if (op.op.stage == 0) return;
    Op input = op.op;
    --input.stage;
    const auto producer = ops_.find(KeyOf(op.iteration, input));
    if (producer == ops_.end()) {
      Add(op, fmt::format("needs {}, which did not run on the rejected version", ToString(input)));
      return;
    }
    TimeNs there = producer->second->end;
    if (producer->second->rank != op.rank) {
      const auto arrival =
          arrivals_.find(std::tuple_cat(KeyOf(op.iteration, input), std::tuple(op.rank)));
      if (arrival == arrivals_.end()) {
        Add(op, fmt::format("needs {}, and no message brings it", ToString(input)));
        return;
      }
      there = arrival->second->end;
    }
    if (op.start < there) {
      Add(op, fmt::format("starts at {} ns, before {} is there at {} ns", op.start, ToString(input),
                          there));
    }
  }

  void CheckThatAllRunAgain(const std::vector<OpRecord>& kept) {
    if (dropped_.ops.empty()) return;
    std::set<RankedOpKey> again;
    for (const OpRecord& op : kept) {
      if (op.op.pass != Pass::kF) continue;
      again.insert(std::tuple_cat(KeyOf(op.iteration, op.op), std::tuple(op.rank)));
    }
    for (const OpRecord& op : dropped_.ops) {
      const auto key = std::tuple_cat(KeyOf(op.iteration, op.op), std::tuple(op.rank));
      if (!again.contains(key)) Add(op, "is not run again on its rank");
    }
  }

  const TimelineRecords& dropped_;
  FindingList& findings_;
  std::map<OpKey, const OpRecord*> ops_;
  std::map<RankedOpKey, const MessageEnd*> arrivals_;
};

}  // namespace

void CheckDropped(const TimelineRecords& dropped, const std::vector<OpRecord>& kept,
                  FindingList& findings) {
  DroppedFlow(dropped, findings).Check(kept);
}

}  // namespace spiritlevel::check
