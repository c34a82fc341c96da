#include "sim/program.h"

#include <algorithm>
#include <array>

namespace spiritlevel {

std::string_view Name(Posting posting) {
  constexpr std::array<std::string_view, 3> kNames = {"ideal", "nccl-fifo", "batched"};
  return kNames[static_cast<size_t>(posting)];
}

std::string_view Name(Receives receives) {
  constexpr std::array<std::string_view, 3> kNames = {"early", "deferred", "naive"};
  return kNames[static_cast<size_t>(receives)];
}

std::string_view Name(Channels channels) {
  constexpr std::array<std::string_view, 2> kNames = {"pair", "directed"};
  return kNames[static_cast<size_t>(channels)];
}

std::string_view Name(Tail tail) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "barrier", "post-validation-strict",
                                                      "post-validation-speculative"};
  return kNames[static_cast<size_t>(tail)];
}

std::string_view Name(WeightGrads weight_grads) {
  constexpr std::array<std::string_view, 2> kNames = {"by-micro-batch", "by-bucket"};
  return kNames[static_cast<size_t>(weight_grads)];
}

int32_t Program::gradient_sums_begin(int rank, int iteration) const {
  if (gradient_sums_.empty()) return 0;
  const auto all = static_cast<int32_t>(reductions_.size());
  const int32_t first = all - num_iterations_ * gradient_sums_.back();
  return first + iteration * gradient_sums_.back() + gradient_sums_[rank];
}

int32_t Program::gradient_sums_end(int rank, int iteration) const {
  if (gradient_sums_.empty()) return 0;
  return gradient_sums_begin(rank, iteration) + gradient_sums_[rank + 1] - gradient_sums_[rank];
}

int Program::rank_of(NodeId lane_node) const {
  const auto after = std::upper_bound(rank_begin_.begin(), rank_begin_.end(), lane_node);
  return static_cast<int>(after - rank_begin_.begin()) - 1;
}

int Program::chunk_of(int rank, int stage) const {
  const std::vector<int>& stages = stages_of_[rank];
  return static_cast<int>(std::lower_bound(stages.begin(), stages.end(), stage) - stages.begin());
}

// Under ideal posting the messages of a link are sent in the order in which they are made, and
// received in the order in which they were sent; that is the order of their numbers.
std::vector<Lane> Program::CommunicationLanes() const {
  if (posting_ != Posting::kIdeal) return lanes_;
  std::vector<Lane> lanes(2 * links_.size());
  for (size_t link = 0; link < links_.size(); ++link) {
    lanes[2 * link].rank = links_[link].from_rank;
    lanes[2 * link + 1].rank = links_[link].to_rank;
  }
  for (MessageId m = 0; m < static_cast<MessageId>(messages_.size()); ++m) {
    const size_t link = static_cast<size_t>(messages_[m].link);
    lanes[2 * link].nodes.push_back(send_node(m));
    lanes[2 * link + 1].nodes.push_back(receive_node(m));
  }
  lanes.insert(lanes.end(), lanes_.begin(), lanes_.end());
  return lanes;
}

int Program::ReplaysBefore(int iteration) const {
  // Iteration i is replayed where the version of i - 1 is rejected.
  const auto end = std::lower_bound(rejected_.begin(), rejected_.end(), iteration - 1);
  return static_cast<int>(end - rejected_.begin());
}

bool Program::is_replayed(int iteration) const {
  return std::binary_search(rejected_.begin(), rejected_.end(), iteration - 1);
}

bool Program::is_provisional(NodeId lane_node, int rank) const {
  const Node& node = nodes_[static_cast<size_t>(lane_node)];
  if (node.kind == NodeKind::kDroppedOp) return true;
  const bool op = RunsOps(node.kind);
  // The first iteration reads what the run began with; a replay, what the rollback made right.
  if (!op || validation_place_.empty() || node.iteration == 0 || is_replayed(node.iteration)) {
    return false;
  }
  return lane_node < iteration_begin(rank, node.iteration) + validation_place_[rank];
}

}  // namespace spiritlevel
