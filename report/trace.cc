#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "report/trace_packets.h"

namespace spiritlevel {
namespace {

constexpr uint64_t kAboutTrack = 1;
constexpr int kOrderOfLanes = 16;  // below compute and the counters

struct Window {
  TimeNs from = 0;
  TimeNs to = std::numeric_limits<TimeNs>::max();

  bool Shows(TimeNs start, TimeNs end) const { return end >= from && start <= to; }
};

bool IsOp(const Node& node) { return node.kind == NodeKind::kOp || node.kind == NodeKind::kPair; }

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
      : program_(program), timeline_(timeline), options_(options) {
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      const NodeId end = program.iteration_begin(rank, options.iterations);
      num_nodes_ += end - program.rank_begin(rank);
      length_ = std::max(length_, TimesOf(end - 1).end);
    }
  }

  // Sends before receives before ops: of events at one time, the viewer takes the first in the file
  // first, and an arrow must leave before it arrives.
  std::string Write() {
    ChooseWindow();
    DescribeTracks();
    if (options_.communication_lanes) {
      for (const bool sends : {true, false}) WriteMessages(sends);
    }
    for (int rank = 0; rank < program_.num_ranks(); ++rank) WriteRank(rank);
    return packets_.Take();
  }

 private:
  struct RankTracks {
    uint64_t process = 0;
    uint64_t compute = 0;
    std::array<uint64_t, kNumMemoryCategories> counters{};  // 0: it never holds any
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
    }
    if (options_.communication_lanes) DescribeLanes();
  }

  // Of what the rank ever holds.
  void DescribeCounters(int rank) {
    std::array<bool, kNumMemoryCategories> used{};
    const auto look_at = [&](const MemoryByCategory& memory) {
      for (size_t i = 0; i < used.size(); ++i) used[i] |= memory[i] != 0;
    };
    look_at(program_.static_memory(rank));
    for (NodeId id = program_.rank_begin(rank); id < EndOf(rank); ++id) {
      const Node& node = program_.nodes()[id];
      if (node.cost == kNone) continue;
      look_at(program_.costs()[node.cost].at_start);
      look_at(program_.costs()[node.cost].at_end);
    }
    RankTracks& tracks = ranks_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      tracks.counters[i] = NewTrack();
      packets_.Track({.uuid = tracks.counters[i],
                      .parent = tracks.process,
                      .name = InWords(static_cast<MemoryCategory>(i)),
                      .order = 1 + static_cast<int>(i),
                      .counts_bytes = true});
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
    const std::string name = NameOf(program_.nodes()[producer], program_.rank_of(producer));
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

  void WriteCounters(const RankTracks& tracks, const MemoryByCategory& live, TimeNs time) {
    for (size_t i = 0; i < live.size(); ++i) {
      if (tracks.counters[i] != 0) packets_.Counter({tracks.counters[i], live[i]}, time);
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
    if (node.kind == NodeKind::kOptimizer) return "optimizer";
    if (!IsOp(node)) return node.kind == NodeKind::kCollective ? "collective" : "other";
    const std::string first = NameOf(node.op, rank);
    if (node.kind == NodeKind::kOp) return first;
    return first + "&" + NameOf(program_.second_op(node), rank);
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
