#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "report/trace_packets.h"

namespace spiritlevel {
namespace {

constexpr uint64_t kAboutTrack = 1;
constexpr int kOrderOfSums = 10;   // below compute and the counters
constexpr int kOrderOfLanes = 16;  // below those

// From so many iterations on a name is used often enough.
constexpr int kInternedFrom = 4;

// The lanes of sums that a rank may have.
constexpr std::array<const char*, 3> kSumLanes = {"gradient sums", "between ranks",
                                                  "validated reduction"};

size_t SumLaneOf(NodeKind kind) {
  return kind == NodeKind::kBucketSum ? 0 : kind == NodeKind::kReduction ? 2 : 1;
}

struct Window {
  TimeNs from = 0;
  TimeNs to = std::numeric_limits<TimeNs>::max();

  bool Shows(TimeNs start, TimeNs end) const { return end >= from && start <= to; }
};

// "waiting for B"
std::string InWords(MemoryCategory category) {
  if (category == MemoryCategory::kWaitingForB) return "waiting for B";
  if (category == MemoryCategory::kWaitingForW) return "waiting for W";
  std::string words(Name(category));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

class TraceWriter {
 public:
  TraceWriter(const Program& program, const Timeline& timeline, const TraceOptions& options)
      : program_(program),
        timeline_(timeline),
        options_(options),
        packets_(options.iterations >= kInternedFrom) {
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      const NodeId end = program.iteration_begin(rank, options.iterations);
      num_nodes_ += end - program.rank_begin(rank);
      length_ = std::max(length_, TimesOf(end - 1).end);
      ForEachSum(rank, [&](const Reduction&, const NodeTimes& times, int) {
        length_ = std::max(length_, times.end);
      });
    }
  }

  // Sends before receives before ops: of events at one time, the viewer takes the first in the file
  // first, and an arrow must leave before it arrives.
  std::string Write() {
    ChooseWindow();
    packets_.SetTimeUnit(TimeUnit());
    DescribeTracks();
    if (options_.communication_lanes) {
      for (const bool sends : {true, false}) WriteMessages(sends);
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      WriteRank(rank);
      WriteSums(rank);
    }
    return packets_.Take();
  }

 private:
  struct RankTracks {
    uint64_t process = 0;
    uint64_t compute = 0;
    std::array<uint64_t, kNumMemoryCategories> counters{};  // 0: it never holds any
    std::array<uint64_t, kSumLanes.size()> sums{};          // 0: it has none
  };

  const NodeTimes& TimesOf(NodeId id) const { return timeline_.nodes[static_cast<size_t>(id)]; }
  const MessageTimes& TimesOfMessage(MessageId id) const {
    return timeline_.messages[static_cast<size_t>(id)];
  }
  NodeId EndOf(int rank) const { return program_.iteration_begin(rank, options_.iterations); }

  void ChooseWindow() {
    if (options_.from || options_.to) {
      window_.from = options_.from.value_or(0);
      window_.to = options_.to.value_or(window_.to);
    } else if (num_nodes_ > options_.max_nodes) {
      window_.to = StartOfNode(options_.max_nodes) - 1;
    }
  }

  // The time before which `count` nodes of all ranks have started.
  TimeNs StartOfNode(int64_t count) const {
    std::vector<TimeNs> starts;
    starts.reserve(static_cast<size_t>(num_nodes_));
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      for (NodeId id = program_.rank_begin(rank); id < EndOf(rank); ++id) {
        starts.push_back(TimesOf(id).start);
      }
    }
    const auto at = starts.begin() + count;
    std::nth_element(starts.begin(), at, starts.end());
    return *at;
  }

  // The largest unit that divides all times, so a microsecond where nothing is given more finely.
  TimeNs TimeUnit() const {
    TimeNs unit = std::max<TimeNs>(0, window_.from);
    const auto divide = [&](TimeNs time) {
      if (unit == 0 || time % unit != 0) unit = std::gcd(unit, time);
    };
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      for (NodeId id = program_.rank_begin(rank); id < EndOf(rank) && unit != 1; ++id) {
        divide(TimesOf(id).start);
        divide(TimesOf(id).end);
        const Node& node = program_.nodes()[id];
        for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
          divide(TimesOfMessage(m).start);
          divide(TimesOfMessage(m).arrival);
        }
      }
      ForEachSum(rank, [&](const Reduction&, const NodeTimes& times, int) {
        divide(times.start);
        divide(times.end);
      });
    }
    for (const Link& link : program_.links()) divide(link.hop.busy);
    return std::max<TimeNs>(unit, 1);
  }

  std::string About() const {
    std::string about = options_.title.empty() ? "" : options_.title + ": ";
    const bool all = window_.from <= 0 && window_.to >= length_;
    if (all) return about + fmt::format("all of it, 0 to {} ns", length_);
    about +=
        fmt::format("only {} to {} ns of {}", window_.from, std::min(window_.to, length_), length_);
    if (options_.from || options_.to) return about;
    return about +
           fmt::format(", since there are {} nodes; choose a window to see others", num_nodes_);
  }

  uint64_t NewTrack() { return ++last_track_; }

  void DescribeTracks() {
    packets_.Track({.uuid = kAboutTrack, .name = "Spiritlevel"});
    packets_.Instant(kAboutTrack, std::max<TimeNs>(0, window_.from), About());
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      RankTracks& tracks = ranks_.emplace_back();
      tracks.process = NewTrack();
      packets_.Process(tracks.process, rank + 1, fmt::format("rank {}", rank), rank);
      tracks.compute = NewTrack();
      packets_.Track({.uuid = tracks.compute, .parent = tracks.process, .name = "compute"});
      DescribeCounters(rank);
      DescribeSums(rank);
    }
    if (options_.communication_lanes) DescribeLanes();
  }

  // Of what the rank ever holds. Each counts in the largest unit that divides all its values, which
  // is often one micro-batch's share.
  void DescribeCounters(int rank) {
    std::array<Bytes, kNumMemoryCategories> unit{};
    std::array<int64_t, kNumMemoryCategories> changes{};
    const auto look_at = [&](const MemoryByCategory& memory) {
      for (size_t i = 0; i < unit.size(); ++i) {
        unit[i] = std::gcd(unit[i], memory[i]);
        changes[i] += memory[i] != 0 ? 1 : 0;
      }
    };
    for (NodeId id = program_.rank_begin(rank); id < EndOf(rank); ++id) {
      const Node& node = program_.nodes()[id];
      if (node.cost == kNone) continue;
      look_at(program_.costs()[node.cost].at_start);
      look_at(program_.costs()[node.cost].at_end);
    }
    const std::array<int64_t, kNumMemoryCategories> often = changes;
    look_at(program_.static_memory(rank));
    RankTracks& tracks = ranks_[static_cast<size_t>(rank)];
    std::vector<size_t> order;
    for (size_t i = 0; i < unit.size(); ++i) {
      if (unit[i] == 0) continue;
      tracks.counters[i] = NewTrack();
      packets_.Track({.uuid = tracks.counters[i],
                      .parent = tracks.process,
                      .name = InWords(static_cast<MemoryCategory>(i)),
                      .order = 1 + static_cast<int>(i),
                      .bytes_each = unit[i]});
      if (often[i] > 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return often[a] > often[b]; });
    std::vector<uint64_t> counters;
    for (const size_t i : order) counters.push_back(tracks.counters[i]);
    packets_.SetCounters(tracks.compute, std::move(counters));
  }

  // Calls `visit` with each of a rank's sums, its times and its iteration: iteration by iteration,
  // each lane in order.
  template <class Visit>
  void ForEachSum(int rank, Visit&& visit) const {
    for (int i = 0; i < options_.iterations; ++i) {
      const auto visit_sum = [&](int32_t sum) {
        visit(program_.reductions()[static_cast<size_t>(sum)],
              timeline_.reductions[static_cast<size_t>(sum)], i);
      };
      const int32_t end = program_.gradient_sums_end(rank, i);
      for (int32_t sum = program_.gradient_sums_begin(rank, i); sum < end; ++sum) visit_sum(sum);
      if (IsPostValidation(program_.tail())) visit_sum(program_.reduction_of(rank, i));
    }
  }

  void DescribeSums(int rank) {
    RankTracks& tracks = ranks_[static_cast<size_t>(rank)];
    std::array<bool, kSumLanes.size()> used{};
    ForEachSum(rank, [&](const Reduction& sum, const NodeTimes&, int) {
      used[SumLaneOf(sum.kind)] = true;
    });
    for (size_t lane = 0; lane < used.size(); ++lane) {
      if (!used[lane]) continue;
      tracks.sums[lane] = NewTrack();
      packets_.Track({.uuid = tracks.sums[lane],
                      .parent = tracks.process,
                      .name = kSumLanes[lane],
                      .order = kOrderOfSums + static_cast<int>(lane)});
    }
  }

  void DescribeLanes() {
    for (const Link& link : program_.links()) {
      for (const bool sends : {true, false}) {
        const int rank = sends ? link.from_rank : link.to_rank;
        const int peer = sends ? link.to_rank : link.from_rank;
        const uint64_t track = NewTrack();
        (sends ? send_tracks_ : receive_tracks_).push_back(track);
        packets_.Track({.uuid = track,
                        .parent = ranks_[static_cast<size_t>(rank)].process,
                        .name = fmt::format(
                            fmt::runtime(sends ? "send to rank {}" : "receive from rank {}"), peer),
                        .order = kOrderOfLanes + 2 * peer + (sends ? 0 : 1)});
      }
    }
  }

  // One flow for each message; 0 is no id.
  static uint64_t FlowOf(MessageId message) { return static_cast<uint64_t>(message) + 1; }

  bool ShowsMessage(MessageId id) const {
    const MessageTimes& times = TimesOfMessage(id);
    return window_.Shows(times.start, times.arrival);
  }

  // By link, as they start.
  std::vector<std::vector<MessageId>> MessagesOfLinks() const {
    std::vector<std::vector<MessageId>> links(program_.links().size());
    for (int rank = 0; rank < program_.num_ranks(); ++rank) {
      for (NodeId id = program_.rank_begin(rank); id < EndOf(rank); ++id) {
        const Node& node = program_.nodes()[id];
        for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
          links[static_cast<size_t>(program_.messages()[m].link)].push_back(m);
        }
      }
    }
    for (std::vector<MessageId>& messages : links) {
      std::stable_sort(messages.begin(), messages.end(), [&](MessageId a, MessageId b) {
        return TimesOfMessage(a).start < TimesOfMessage(b).start;
      });
    }
    return links;
  }

  void WriteMessages(bool sends) {
    const std::vector<std::vector<MessageId>> links = MessagesOfLinks();
    for (size_t link = 0; link < links.size(); ++link) {
      const uint64_t track = (sends ? send_tracks_ : receive_tracks_)[link];
      for (size_t i = 0; i < links[link].size(); ++i) {
        if (!ShowsMessage(links[link][i])) continue;
        const TimeNs next = i + 1 < links[link].size() ? TimesOfMessage(links[link][i + 1]).start
                                                       : std::numeric_limits<TimeNs>::max();
        const TimeNs last = i > 0 ? TimesOfMessage(links[link][i - 1]).arrival : 0;
        const auto [start, end] = OnLane(links[link][i], sends, last, next);
        WriteMessage(links[link][i], track, start, end, sends);
      }
    }
  }

  // When a message is on its lane. `last` and `next`: when the message before it on its link had
  // arrived, and when the one after it starts.
  std::pair<TimeNs, TimeNs> OnLane(MessageId id, bool sends, TimeNs last, TimeNs next) const {
    const MessageTimes& times = TimesOfMessage(id);
    if (program_.posting() != Posting::kIdeal) {
      return sends ? std::pair(times.start, std::clamp(next, times.start, times.arrival))
                   : std::pair(std::clamp(last, times.start, times.arrival), times.arrival);
    }
    const Link& link = program_.links()[program_.messages()[id].link];
    const TimeNs busy = std::min(link.hop.busy, times.arrival - times.start);
    return sends ? std::pair(times.start, times.start + busy)
                 : std::pair(times.arrival - busy, times.arrival);
  }

  void WriteMessage(MessageId id, uint64_t track, TimeNs start, TimeNs end, bool sends) {
    const NodeId producer = program_.messages()[id].from;
    const Node& node = program_.nodes()[producer];
    const int rank = program_.rank_of(producer);
    // What the last part of an op sends is the op's.
    const std::string name =
        node.kind == NodeKind::kPart ? NameOf(node.op, rank) : NameOf(node, rank);
    const uint64_t flow[] = {FlowOf(id)};
    const EventExtras extras =
        sends ? EventExtras{.flows = flow} : EventExtras{.terminating_flows = flow};
    if (start == end) {
      packets_.Instant(track, start, name, extras);
      return;
    }
    packets_.Begin(track, start, name, extras);
    packets_.End(track, end);
  }

  void WriteRank(int rank) {
    const RankTracks& tracks = ranks_[static_cast<size_t>(rank)];
    MemoryByCategory live = program_.static_memory(rank);
    bool begun = false;
    for (NodeId id = program_.rank_begin(rank); id < EndOf(rank); ++id) {
      const NodeTimes& times = TimesOf(id);
      const bool shown = window_.Shows(times.start, times.end);
      if (shown && !begun) {
        // What lies there when the window opens.
        WriteCounters(tracks, live, std::min(times.start, std::max<TimeNs>(0, window_.from)));
        begun = true;
      }
      WriteNode(id, rank, shown, live);
    }
  }

  // One that takes no time is an instant.
  void WriteSums(int rank) {
    ForEachSum(rank, [&](const Reduction& sum, const NodeTimes& times, int iteration) {
      if (!window_.Shows(times.start, times.end)) return;
      const uint64_t track = ranks_[static_cast<size_t>(rank)].sums[SumLaneOf(sum.kind)];
      const EventExtras extras{
          .bytes = program_.collectives()[static_cast<size_t>(sum.collective)].bytes};
      if (times.start == times.end) {
        packets_.Instant(track, times.start, NameOf(sum, iteration), extras);
        return;
      }
      packets_.Begin(track, times.start, NameOf(sum, iteration), extras);
      packets_.End(track, times.end);
    });
  }

  static std::string NameOf(const Reduction& sum, int iteration) {
    switch (sum.kind) {
      case NodeKind::kBucketSum:
        return fmt::format("sum of bucket {} of stage {}", sum.bucket, sum.stage);
      case NodeKind::kTiedSum:
        return fmt::format("sum of the tied embedding, stage {}", sum.stage);
      case NodeKind::kReduction:
        return fmt::format("reduction of iteration {}", iteration);
      default:
        return fmt::format("sum of stage {}", sum.stage);
    }
  }

  void WriteCounters(const RankTracks& tracks, const MemoryByCategory& live, TimeNs time) {
    for (size_t i = 0; i < live.size(); ++i) {
      if (tracks.counters[i] == 0) continue;
      packets_.Counter(tracks.compute, {tracks.counters[i], live[i]}, time);
    }
  }

  void WriteNode(NodeId id, int rank, bool shown, MemoryByCategory& live) {
    const Node& node = program_.nodes()[id];
    const RankTracks& tracks = ranks_[static_cast<size_t>(rank)];
    const MemoryByCategory none{};
    const bool costs = node.cost != kNone;
    const auto& at_start = costs ? program_.costs()[node.cost].at_start : none;
    const auto& at_end = costs ? program_.costs()[node.cost].at_end : none;
    Change(tracks, at_start, live);
    if (shown) {
      FindFlows(id);
      packets_.Begin(tracks.compute, TimesOf(id).start, NameOf(node, rank),
                     {.counters = changed_, .flows = flows_out_, .terminating_flows = flows_in_});
    }
    Change(tracks, at_end, live);
    if (shown) packets_.End(tracks.compute, TimesOf(id).end, {.counters = changed_});
  }

  // Leaves in changed_ the counters that change.
  void Change(const RankTracks& tracks, const MemoryByCategory& change, MemoryByCategory& live) {
    changed_.clear();
    for (size_t i = 0; i < live.size(); ++i) {
      if (change[i] == 0) continue;
      live[i] += change[i];
      changed_.push_back({tracks.counters[i], live[i]});
    }
  }

  // From op to op, where there are no lanes to show them.
  void FindFlows(NodeId id) {
    flows_in_.clear();
    flows_out_.clear();
    if (options_.communication_lanes) return;
    const auto shows = [&](NodeId other) {
      return window_.Shows(TimesOf(other).start, TimesOf(other).end);
    };
    const Node& node = program_.nodes()[id];
    for (const MessageId m : node.inputs) {
      if (m != kNone && shows(program_.messages()[m].from)) flows_in_.push_back(FlowOf(m));
    }
    for (MessageId m = node.first_output; m < node.first_output + node.num_outputs; ++m) {
      if (shows(program_.messages()[m].to)) flows_out_.push_back(FlowOf(m));
    }
  }

  // "F12"; "9F12" on a rank of several stages; of a pair both, joined by "&".
  std::string NameOf(const Node& node, int rank) const {
    switch (node.kind) {
      case NodeKind::kOp:
        return NameOf(node.op, rank);
      case NodeKind::kPair:
        return NameOf(node.op, rank) + "&" + NameOf(program_.second_op(node), rank);
      case NodeKind::kPart:
        return fmt::format("{} part {} of {}", NameOf(node.op, rank), program_.part(node).index + 1,
                           program_.part(node).count);
      case NodeKind::kDroppedOp:
        return "dropped " + NameOf(node.op, rank);
      case NodeKind::kCollective:
        return "barrier";
      case NodeKind::kOptimizer:
        return "optimizer";
      case NodeKind::kValidation:
        return "validation";
      case NodeKind::kRollback:
        return "rollback";
      default:
        return "other";
    }
  }

  std::string NameOf(const Op& op, int rank) const {
    const bool several = program_.num_stages() > program_.num_ranks() ||
                         program_.parameter_copies() > 1 || program_.chunk_of(rank, op.stage) > 0;
    std::string name = several ? std::to_string(op.stage) : "";
    name += Name(op.pass);
    return name + std::to_string(op.micro_batch);
  }

  const Program& program_;
  const Timeline& timeline_;
  const TraceOptions& options_;
  Window window_;
  int64_t num_nodes_ = 0;
  TimeNs length_ = 0;
  uint64_t last_track_ = kAboutTrack;
  std::vector<RankTracks> ranks_;
  std::vector<uint64_t> send_tracks_;  // by link
  std::vector<uint64_t> receive_tracks_;
  std::vector<CounterValue> changed_;
  std::vector<uint64_t> flows_in_;
  std::vector<uint64_t> flows_out_;
  TracePackets packets_;
};

}  // namespace

std::string PerfettoTrace(const Program& program, const Timeline& timeline,
                          const TraceOptions& options) {
  return TraceWriter(program, timeline, options).Write();
}

}  // namespace spiritlevel
