#include "sim/program.h"

#include <algorithm>
#include <array>

namespace spiritlevel {

std::string_view Name(Posting posting) {
  constexpr std::array<std::string_view, 1> kNames = {"ideal"};
  return kNames[static_cast<size_t>(posting)];
}

std::string_view Name(Tail tail) {
  constexpr std::array<std::string_view, 2> kNames = {"none", "barrier"};
  return kNames[static_cast<size_t>(tail)];
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
  std::vector<Lane> lanes(2 * links_.size());
  for (size_t link = 0; link < links_.size(); ++link) {
    const int id = static_cast<int>(link);
    lanes[2 * link] = {.rank = links_[link].from_rank, .link = id, .sends = true, .nodes = {}};
    lanes[2 * link + 1] = {.rank = links_[link].to_rank, .link = id, .sends = false, .nodes = {}};
  }
  for (MessageId m = 0; m < static_cast<MessageId>(messages_.size()); ++m) {
    const size_t link = static_cast<size_t>(messages_[m].link);
    lanes[2 * link].nodes.push_back(send_node(m));
    lanes[2 * link + 1].nodes.push_back(receive_node(m));
  }
  return lanes;
}

}  // namespace spiritlevel
