// RankRunner: runs one rank's compute lane over an Exchange, and has its work do what stands there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "verify/exchange.h"
#include "verify/lane_plan.h"
#include "verify/routes.h"
#include "verify/run.h"
#include "verify/work.h"

namespace spiritlevel {

class RankRunner : private Servant {
 public:
  struct Setting {
    const LanePlan& plan;
    const Routes& routes;
    const WorkFactory& make_work;
    const RunOptions& options;
    int rank = 0;
    int replica = 0;
  };

  RankRunner(const Setting& setting, Exchange& exchange)
      : setting_(setting), program_(setting.plan.program()), exchange_(exchange) {}

  // From making the work to giving it back. Nothing is thrown: what fails, fails the run. False
  // where a fault has killed the rank, which then says nothing more.
  bool Run() noexcept;

 private:
  // How a killed thread ends: no message, no farewell.
  struct Killed {};

  void MakeWork();
  void RunLane();
  void RunNode(NodeId node);
  void RunCollective(NodeId node, TimeNs head);
  // Fills in `outputs`; the node's own times are set.
  void DoWork(NodeId node, TimeNs start);
  void RunOps(NodeId node, TimeNs start);
  OpCall CallOf(NodeId node, int which, const Op& op, TimeNs start);
  Payload InputOf(const Route& route);
  void Keep(const Route& route, Payload output);
  void Validate(NodeId node);
  void RollBack(NodeId node, TimeNs start);
  NodeTimes TimesOf(NodeId node, TimeNs head) const;
  TimeNs LaunchOf(NodeId node) const;
  void SufferFaults(NodeId node);

  SumCall SumOf(NodeId member) const;
  Payload Contribute(NodeId member) override;
  void Combine(NodeId member, std::span<const std::span<const std::byte>> contributions) override;

  Setting setting_;
  const Program& program_;
  Exchange& exchange_;
  std::shared_ptr<RankWork> work_;
  std::vector<Payload> cells_;  // results that stay on this rank, by what receives them
  std::vector<uint8_t> cell_is_set_;
  std::vector<Outgoing> outputs_;  // of the node at hand
  TimeNs lane_free_ = 0;
  NodeId at_ = kNone;
};

}  // namespace spiritlevel
