// The other side of torch_comms_csv.cc: what was written, run as PyTorch runs it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "report/torch_comms_csv.h"

namespace spiritlevel {
namespace {

struct Action {
  std::string text;
  std::string_view kind;  // of kKinds
  int stage = 0;
  int micro_batch = -1;

  bool is_send() const { return kind.starts_with("SEND"); }
  bool is_receive() const { return kind.starts_with("RECV"); }
  bool is_compute() const { return kind.size() == 1; }
};

constexpr std::array<std::string_view, 11> kKinds = {
    "SEND_F",      "SEND_B", "RECV_F", "RECV_B", "UNSHARD", "RESHARD",
    "REDUCE_GRAD", "F",      "I",      "W",      "B"};

bool TakeNumber(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool Parse(std::string_view text, Action& action) {
  action.text = text;
  if (!TakeNumber(text, action.stage)) return false;
  for (const std::string_view kind : kKinds) {
    if (!text.starts_with(kind)) continue;
    action.kind = kind;
    text.remove_prefix(kind.size());
    const bool of_stage = kind == "UNSHARD" || kind == "RESHARD" || kind == "REDUCE_GRAD";
    return (of_stage || TakeNumber(text, action.micro_batch)) && text.empty();
  }
  return false;
}

std::string_view TakeUpTo(char separator, std::string_view& text) {
  const size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return taken;
}

// What a message is: the kind of pass, the stage that made it, and the micro-batch.
using Key = std::tuple<bool, int, int>;

Key MessageOf(const Action& a) {
  const bool forward = a.kind.back() == 'F';
  const int maker = a.is_send() ? a.stage : forward ? a.stage - 1 : a.stage + 1;
  return {forward, maker, a.micro_batch};
}

using Cell = std::vector<Action>;

class Run {
 public:
  std::string Of(std::string_view csv) {
    if (!Read(csv) || !CheckRows()) return objection_;
    Play();
    return objection_;
  }

 private:
  // The far end of everything between two ranks; `posted` by side, in order.
  struct Channel {
    std::deque<const Action*> posted[2];
  };

  bool Object(std::string what) {
    objection_ = std::move(what);
    return false;
  }

  bool Read(std::string_view csv) {
    while (!csv.empty()) {
      std::string_view line = TakeUpTo('\n', csv);
      const size_t rank = rows_.size();
      rows_.emplace_back();
      while (!line.empty()) {
        std::string_view text = TakeUpTo(',', line);
        Cell& cell = rows_.back().emplace_back();
        bool read = true;
        if (text.starts_with('(')) {
          std::string_view inner = text.substr(1, text.find(')') - 1);
          read = text.ends_with(")OVERLAP_F_B");
          while (read && !inner.empty()) read = Parse(TakeUpTo(';', inner), cell.emplace_back());
        } else {
          read = Parse(text, cell.emplace_back());
        }
        if (!read) return Object(fmt::format("rank {}: \"{}\" is not an action", rank, text));
      }
    }
    return true;
  }

  // Where stages lie; and that each op finds its input on its own rank, before it in its row.
  bool CheckRows() {
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      for (const Cell& cell : rows_[rank]) {
        for (const Action& a : cell) {
          const auto [at, is_new] = rank_of_.emplace(a.stage, rank);
          if (is_new || at->second == rank) continue;
          return Object(
              fmt::format("rank {}: {} is of a stage of rank {}", rank, a.text, at->second));
        }
      }
    }
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      std::set<Key> there;
      for (const Cell& cell : rows_[rank]) {
        for (const Action& a : cell) {
          if (!CheckAction(rank, a, there)) return false;
        }
        for (const Action& a : cell) {
          if (a.kind == "F") there.insert({true, a.stage, a.micro_batch});
          if (a.kind == "I" || a.kind == "B") there.insert({false, a.stage, a.micro_batch});
        }
      }
    }
    return true;
  }

  bool CheckAction(size_t rank, const Action& a, std::set<Key>& there) {
    if (a.is_receive()) {
      if (!there.insert(MessageOf(a)).second) {
        return Object(fmt::format("rank {}: {} is there already", rank, a.text));
      }
      return true;
    }
    if (a.is_send()) {
      if (there.count(MessageOf(a)) > 0) return true;
      return Object(fmt::format("rank {}: {} before it is made", rank, a.text));
    }
    if (!a.is_compute() || a.kind == "W") return true;
    const bool forward = a.kind == "F";
    const int maker = forward ? a.stage - 1 : a.stage + 1;
    if (rank_of_.count(maker) == 0 || there.count({forward, maker, a.micro_batch}) > 0) return true;
    return Object(fmt::format("rank {}: {} before its {}RECV_{}{}", rank, a.text, a.stage,
                              forward ? 'F' : 'B', a.micro_batch));
  }

  // Each rank posts on until an op needs what has not come. What is posted between two ranks is
  // done from the front, when both have posted the two halves of it.
  void Play() {
    std::vector<size_t> next(rows_.size(), 0);
    for (bool progress = true; progress && objection_.empty();) {
      progress = false;
      for (size_t rank = 0; rank < rows_.size(); ++rank) {
        while (next[rank] < rows_[rank].size() && CanRun(rank, rows_[rank][next[rank]])) {
          for (const Action& a : rows_[rank][next[rank]]) Post(rank, a);
          ++next[rank];
          progress = true;
        }
      }
      for (auto& [ranks, channel] : channels_) progress |= Match(channel);
    }
    if (!objection_.empty()) return;
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      if (next[rank] == rows_[rank].size()) continue;
      Object(fmt::format("rank {}: {} waits for ever", rank, rows_[rank][next[rank]][0].text));
      return;
    }
    for (const auto& [ranks, channel] : channels_) {
      for (const auto& side : channel.posted) {
        if (side.empty()) continue;
        Object(fmt::format("{} between ranks {} and {} is never met", side.front()->text,
                           ranks.first, ranks.second));
        return;
      }
    }
  }

  bool CanRun(size_t rank, const Cell& cell) const {
    for (const Action& a : cell) {
      if (!a.is_compute() || a.kind == "W") continue;
      const bool forward = a.kind == "F";
      const int maker = forward ? a.stage - 1 : a.stage + 1;
      const auto at = rank_of_.find(maker);
      if (at == rank_of_.end() || at->second == rank) continue;
      if (arrived_.count({forward, maker, a.micro_batch}) == 0) return false;
    }
    return true;
  }

  void Post(size_t rank, const Action& a) {
    if (!a.is_send() && !a.is_receive()) return;
    const auto [forward, maker, micro_batch] = MessageOf(a);
    const int other = a.is_receive() ? maker : forward ? a.stage + 1 : a.stage - 1;
    const auto at = rank_of_.find(other);
    if (at == rank_of_.end() || at->second == rank) {
      Object(fmt::format("rank {}: {} has nobody to talk to", rank, a.text));
      return;
    }
    const size_t peer = at->second;
    Channel& channel = channels_[std::minmax(rank, peer)];
    channel.posted[rank < peer ? 0 : 1].push_back(&a);
  }

  bool Match(Channel& channel) {
    bool any = false;
    auto& [lower, higher] = channel.posted;
    while (!lower.empty() && !higher.empty()) {
      const Action& a = *lower.front();
      const Action& b = *higher.front();
      if (a.is_send() == b.is_send() || MessageOf(a) != MessageOf(b)) {
        Object(fmt::format("{} meets {}", a.text, b.text));
        return false;
      }
      arrived_.insert(MessageOf(a));
      lower.pop_front();
      higher.pop_front();
      any = true;
    }
    return any;
  }

  std::vector<std::vector<Cell>> rows_;
  std::map<int, size_t> rank_of_;
  std::map<std::pair<size_t, size_t>, Channel> channels_;
  std::set<Key> arrived_;
  std::string objection_;
};

}  // namespace

std::string TorchCommsObjection(std::string_view csv) { return Run().Of(csv); }

}  // namespace spiritlevel
