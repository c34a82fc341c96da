#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sim/analysis/check_records.h"

namespace spiritlevel::check {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};

// Iterations, stages and micro-batches as one dense number, the cell.
struct Shape {
  int32_t first_iteration = 0;
  int64_t iterations = 0;
  int64_t stages = 0;
  int64_t micro_batches = 0;

  size_t cells() const { return static_cast<size_t>(iterations * stages * micro_batches); }

  bool Contains(int32_t iteration, int stage, int32_t micro_batch) const {
    return iteration >= first_iteration && iteration - first_iteration < iterations && stage >= 0 &&
           stage < stages && micro_batch < micro_batches;
  }

  size_t cell(int32_t iteration, int stage, int32_t micro_batch) const {
    return static_cast<size_t>(
        ((int64_t{iteration} - first_iteration) * stages + stage) * micro_batches + micro_batch);
  }
};

// One message, with the two ends that were seen of it.
struct Transfer {
  uint32_t send = kNowhere;
  uint32_t receive = kNowhere;
};

// Numbers message ids from 0 without gaps that would cost memory: ids as they come from a Program
// are kept, wild ones are ranked.
class IdNumbers {
 public:
  explicit IdNumbers(const std::vector<MessageEnd>& ends) {
    int64_t largest = -1;
    for (const MessageEnd& end : ends) largest = std::max<int64_t>(largest, end.id);
    count_ = static_cast<size_t>(largest + 1);
    constexpr size_t kSlack = 1 << 12;
    if (count_ <= 4 * ends.size() + kSlack) return;
    for (const MessageEnd& end : ends) sorted_.push_back(end.id);
    std::sort(sorted_.begin(), sorted_.end());
    sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
    count_ = sorted_.size();
  }

  size_t count() const { return count_; }

  size_t of(int32_t id) const {
    if (sorted_.empty()) return static_cast<size_t>(id);
    return static_cast<size_t>(std::lower_bound(sorted_.begin(), sorted_.end(), id) -
                               sorted_.begin());
  }

 private:
  std::vector<int32_t> sorted_;
  size_t count_ = 0;
};

class DataFlow {
 public:
  DataFlow(const TimelineRecords& records, FindingList& findings)
      : ops_(records.ops), ends_(records.message_ends), findings_(findings) {}

  void Check() {
    if (!SizeUp()) return;
    PlaceOps();
    CheckCounts();
    CheckVersions();
    MatchMessages();
    for (const Transfer& transfer : transfers_) CheckTransfer(transfer);
    for (const OpRecord& op : ops_) CheckInputs(op);
  }

 private:
  // --- pass_count

  bool SizeUp() {
    if (ops_.empty()) {
      findings_.Add("pass_count", [] { return std::string("the timeline has no ops"); });
      return false;
    }
    int32_t last = ops_[0].iteration;
    shape_.first_iteration = last;
    for (const OpRecord& r : ops_) {
      shape_.first_iteration = std::min(shape_.first_iteration, r.iteration);
      last = std::max(last, r.iteration);
      shape_.stages = std::max<int64_t>(shape_.stages, r.op.stage + 1);
      shape_.micro_batches = std::max(shape_.micro_batches, int64_t{r.op.micro_batch} + 1);
    }
    shape_.iterations = int64_t{last} - shape_.first_iteration + 1;
    // Each cell has at least two ops, so far more cells than ops is absurd.
    const int64_t most = static_cast<int64_t>(ops_.size()) + (1 << 16);
    if (shape_.stages * shape_.micro_batches <= most &&
        shape_.stages * shape_.micro_batches * shape_.iterations <= most) {
      return true;
    }
    findings_.Add("pass_count", [&] {
      return fmt::format(
          "{} iterations, {} stages and {} micro-batches are named, but there are only {} ops",
          shape_.iterations, shape_.stages, shape_.micro_batches, ops_.size());
    });
    return false;
  }

  void PlaceOps() {
    where_.resize(shape_.cells(), {kNowhere, kNowhere, kNowhere, kNowhere});
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      const OpRecord& r = ops_[i];
      uint32_t& place = where_[shape_.cell(r.iteration, r.op.stage, r.op.micro_batch)]
                              [static_cast<size_t>(r.op.pass)];
      if (place == kNowhere) {
        place = i;
        continue;
      }
      findings_.Add("pass_count", [&] {
        return fmt::format("{} ran twice: on rank {} and on rank {}", Text(r.op, r.iteration),
                           ops_[place].rank, r.rank);
      });
    }
  }

  void CheckCounts() {
    size_t cell = 0;
    for (int64_t iteration = 0; iteration < shape_.iterations; ++iteration) {
      for (int64_t stage = 0; stage < shape_.stages; ++stage) {
        for (int64_t i = 0; i < shape_.micro_batches; ++i, ++cell) {
          const char* wrong = WrongWithPasses(where_[cell]);
          if (wrong == nullptr) continue;
          findings_.Add("pass_count", [&] {
            return fmt::format("stage {}, micro-batch {} of iteration {}: {}", stage, i,
                               iteration + shape_.first_iteration, wrong);
          });
        }
      }
    }
  }

  static const char* WrongWithPasses(const std::array<uint32_t, kNumPasses>& where) {
    const auto has = [&](Pass pass) { return where[static_cast<size_t>(pass)] != kNowhere; };
    const bool fused = has(Pass::kBW);
    const bool input = has(Pass::kB);
    const bool weight = has(Pass::kW);
    if (!has(Pass::kF)) return fused || input || weight ? "no F" : "no ops at all";
    if (fused) return input || weight ? "BW, and B or W as well" : nullptr;
    if (input && weight) return nullptr;
    return input ? "B but no W" : weight ? "W but no B" : "F but no backward";
  }

  // --- version

  void CheckVersions() {
    // By (iteration, micro-batch): an op to compare with.
    std::vector<uint32_t> first(static_cast<size_t>(shape_.iterations * shape_.micro_batches),
                                kNowhere);
    const auto first_of = [&](int32_t iteration, const Op& op) -> uint32_t& {
      return first[static_cast<size_t>(
          (int64_t{iteration} - shape_.first_iteration) * shape_.micro_batches + op.micro_batch)];
    };
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      const OpRecord& r = ops_[i];
      uint32_t& other = first_of(r.iteration, r.op);
      if (other == kNowhere) other = i;
      if (ops_[other].parameter_version == r.parameter_version) continue;
      findings_.Add("version", [&] {
        return fmt::format("{} reads parameter version {}, but {} reads version {}",
                           Text(r.op, r.iteration), r.parameter_version, ToString(ops_[other].op),
                           ops_[other].parameter_version);
      });
    }
    for (const MessageEnd& end : ends_) {
      if (!shape_.Contains(end.iteration, end.op.stage, end.op.micro_batch)) continue;
      const uint32_t other = first_of(end.iteration, end.op);
      if (other == kNowhere || ops_[other].parameter_version == end.parameter_version) continue;
      findings_.Add("version", [&] {
        return fmt::format("rank {}: the {} of {} names parameter version {}, but {} reads {}",
                           end.rank, EndText(end), Text(end.op, end.iteration),
                           end.parameter_version, ToString(ops_[other].op),
                           ops_[other].parameter_version);
      });
    }
  }

  // --- message

  void MatchMessages() {
    const IdNumbers numbers(ends_);
    transfers_.resize(numbers.count());
    carrier_of_.resize(shape_.cells(), {kNowhere, kNowhere});
    for (uint32_t i = 0; i < ends_.size(); ++i) {
      const MessageEnd& end = ends_[i];
      if (end.id < 0) {
        findings_.Add("message", [&] {
          return fmt::format("rank {}: {} of {} has no message id", end.rank, EndText(end),
                             Text(end.op, end.iteration));
        });
        continue;
      }
      Transfer& transfer = transfers_[numbers.of(end.id)];
      uint32_t& place = end.receives ? transfer.receive : transfer.send;
      if (place == kNowhere) {
        place = i;
        continue;
      }
      findings_.Add("message", [&] {
        return fmt::format("message {} has two {}s: on rank {} and on rank {}", end.id,
                           EndText(end), ends_[place].rank, end.rank);
      });
    }
  }

  void CheckTransfer(const Transfer& transfer) {
    if (transfer.send == kNowhere && transfer.receive == kNowhere) return;  // an id not in use
    const bool whole = transfer.send != kNowhere && transfer.receive != kNowhere;
    if (!whole) {
      const MessageEnd& end = ends_[transfer.send != kNowhere ? transfer.send : transfer.receive];
      findings_.Add("message", [&] {
        return fmt::format("message {} with {}: rank {} has the {}, but rank {} has no {}", end.id,
                           Text(end.op, end.iteration), end.rank, EndText(end), end.peer,
                           end.receives ? "send" : "receive");
      });
    } else if (const std::string wrong = WrongWith(ends_[transfer.send], ends_[transfer.receive]);
               !wrong.empty()) {
      findings_.Add("message", [&] {
        const MessageEnd& send = ends_[transfer.send];
        return fmt::format("message {} with {}: {}", send.id, Text(send.op, send.iteration), wrong);
      });
    }
    // Kept even when it is broken: who waits for it need not complain a second time.
    KeepAsCarrier(transfer);
  }

  void KeepAsCarrier(const Transfer& transfer) {
    const MessageEnd& end = ends_[transfer.send != kNowhere ? transfer.send : transfer.receive];
    if (!shape_.Contains(end.iteration, end.op.stage, end.op.micro_batch)) return;
    uint32_t& carrier = CarrierOf(end.op, end.iteration);
    if (carrier == kNowhere) {
      carrier = static_cast<uint32_t>(&transfer - transfers_.data());
      return;
    }
    findings_.Add("message", [&] {
      return fmt::format("{} was sent twice, the second time as message {}",
                         Text(end.op, end.iteration), end.id);
    });
  }

  uint32_t& CarrierOf(const Op& op, int32_t iteration) {
    return carrier_of_[shape_.cell(iteration, op.stage, op.micro_batch)][op.pass != Pass::kF];
  }

  std::string WrongWith(const MessageEnd& send, const MessageEnd& receive) const {
    if (send.peer != receive.rank || receive.peer != send.rank) {
      return fmt::format("rank {} sends it to rank {}, but rank {} receives it from rank {}",
                         send.rank, send.peer, receive.rank, receive.peer);
    }
    if (send.rank == receive.rank) return fmt::format("rank {} sends it to itself", send.rank);
    if (send.bytes != receive.bytes) {
      return fmt::format("{} bytes are sent and {} received", send.bytes, receive.bytes);
    }
    if (send.iteration != receive.iteration || send.op.stage != receive.op.stage ||
        send.op.pass != receive.op.pass || send.op.micro_batch != receive.op.micro_batch) {
      return "it is received as " + Text(receive.op, receive.iteration);
    }
    if (receive.end < send.start) {
      return fmt::format("it arrives at {} ns, before it leaves at {} ns", receive.end, send.start);
    }
    return WrongWithProducer(send, receive);
  }

  std::string WrongWithProducer(const MessageEnd& send, const MessageEnd& receive) const {
    const OpRecord* producer =
        Find(send.iteration, send.op.stage, send.op.micro_batch, send.op.pass);
    if (producer == nullptr) return "that op never ran";
    if (producer->rank != send.rank) {
      return fmt::format("rank {} sends it, but it ran on rank {}", send.rank, producer->rank);
    }
    if (send.start < producer->end) {
      return fmt::format("it leaves at {} ns, before it is made at {} ns", send.start,
                         producer->end);
    }
    return WrongWithConsumer(send.op, receive);
  }

  std::string WrongWithConsumer(const Op& op, const MessageEnd& receive) const {
    const OpRecord* consumer =
        op.pass == Pass::kF   ? Find(receive.iteration, op.stage + 1, op.micro_batch, Pass::kF)
        : op.pass == Pass::kW ? nullptr
                              : FindBackward(receive.iteration, op.stage - 1, op.micro_batch);
    if (consumer == nullptr) return "no op waits for it";
    if (consumer->rank == receive.rank) return "";
    return fmt::format("rank {} receives it, but {} runs on rank {}", receive.rank,
                       ToString(consumer->op), consumer->rank);
  }

  // --- dependency

  void CheckInputs(const OpRecord& r) {
    const Op& op = r.op;
    switch (op.pass) {
      case Pass::kF:
        CheckInput(r, Find(r.iteration, op.stage - 1, op.micro_batch, Pass::kF));
        break;
      case Pass::kB:
      case Pass::kBW:
        CheckInput(r, Find(r.iteration, op.stage, op.micro_batch, Pass::kF));
        CheckInput(r, FindBackward(r.iteration, op.stage + 1, op.micro_batch));
        break;
      case Pass::kW:
        CheckInput(r, Find(r.iteration, op.stage, op.micro_batch, Pass::kB));
        break;
    }
  }

  // `input` null: it never ran, which pass_count has said, or there is none.
  void CheckInput(const OpRecord& r, const OpRecord* input) {
    if (input == nullptr) return;
    if (input->rank == r.rank) {
      if (r.start < input->end) AddTooEarly(r, *input, "ends", input->end);
    } else if (IsWithinOneStage(r, *input)) {
      findings_.Add("dependency", [&] {
        return fmt::format("{} ran on rank {}, but {} ran on rank {}, and what it keeps is there",
                           Text(r.op, r.iteration), r.rank, ToString(input->op), input->rank);
      });
    } else {
      CheckArrival(r, *input);
    }
  }

  static bool IsWithinOneStage(const OpRecord& a, const OpRecord& b) {
    return a.op.stage == b.op.stage;
  }

  void CheckArrival(const OpRecord& r, const OpRecord& input) {
    const uint32_t carrier = CarrierOf(input.op, input.iteration);
    if (carrier == kNowhere) {
      findings_.Add("message", [&] {
        return fmt::format("{} on rank {} needs {} of rank {}, and no message brings it",
                           Text(r.op, r.iteration), r.rank, ToString(input.op), input.rank);
      });
    } else if (const uint32_t receive = transfers_[carrier].receive; receive != kNowhere) {
      const TimeNs arrival = ends_[receive].end;
      if (r.start < arrival) AddTooEarly(r, input, "arrives", arrival);
      return;
    }
    if (r.start < input.end) AddTooEarly(r, input, "ends", input.end);
  }

  void AddTooEarly(const OpRecord& r, const OpRecord& input, const char* verb, TimeNs time) {
    findings_.Add("dependency", [&] {
      return fmt::format("{} starts on rank {} at {} ns, but its input {} {} at {} ns",
                         Text(r.op, r.iteration), r.rank, r.start, ToString(input.op), verb, time);
    });
  }

  // --- look-ups and words

  const OpRecord* Find(int32_t iteration, int stage, int32_t micro_batch, Pass pass) const {
    if (!shape_.Contains(iteration, stage, micro_batch)) return nullptr;
    const uint32_t place =
        where_[shape_.cell(iteration, stage, micro_batch)][static_cast<size_t>(pass)];
    return place == kNowhere ? nullptr : &ops_[place];
  }

  const OpRecord* FindBackward(int32_t iteration, int stage, int32_t micro_batch) const {
    const OpRecord* fused = Find(iteration, stage, micro_batch, Pass::kBW);
    return fused != nullptr ? fused : Find(iteration, stage, micro_batch, Pass::kB);
  }

  static std::string Text(const Op& op, int32_t iteration) {
    return fmt::format("{} of iteration {}", ToString(op), iteration);
  }

  static const char* EndText(const MessageEnd& end) { return end.receives ? "receive" : "send"; }

  const std::vector<OpRecord>& ops_;
  const std::vector<MessageEnd>& ends_;
  FindingList& findings_;
  Shape shape_;
  std::vector<std::array<uint32_t, kNumPasses>> where_;  // by cell, by pass
  std::vector<Transfer> transfers_;                      // by message
  std::vector<std::array<uint32_t, 2>> carrier_of_;      // by cell: of its F, of its B or BW
};

}  // namespace

void CheckDataFlow(const TimelineRecords& records, FindingList& findings) {
  DataFlow(records, findings).Check();
}

}  // namespace spiritlevel::check
