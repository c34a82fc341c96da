#include "scenarios/shared_costs.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <optional>
#include <vector>

#include "base/check.h"

namespace spiritlevel {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class SharedCosts {
 public:
  SharedCosts(const proto::Scenario& scenario, const Judge& judge) : judge_(judge) {
    const proto::Costs& costs = scenario.costs();
    holders_ = {{&scenario, &top_}, {&costs, &costs_}};
    if (costs.has_uniform()) holders_.push_back({&costs.uniform(), &uniform_});
    if (costs.has_table()) holders_.push_back({&costs.table(), &table_});
  }
  SharedCosts(const SharedCosts&) = delete;  // the places point to each other
  SharedCosts& operator=(const SharedCosts&) = delete;

  TimeNs Time(const char* field) const {
    const std::optional<Found> found = Find(field);
    if (!found) return 0;
    const double us = found->message->GetReflection()->GetDouble(*found->message, found->field);
    return judge_.Time({*found->place, field}, us);
  }

  Bytes Size(const char* field) const {
    const std::optional<Found> found = Find(field);
    if (!found) return 0;
    const int64_t bytes = found->message->GetReflection()->GetInt64(*found->message, found->field);
    return judge_.Size({*found->place, field}, bytes);
  }

 private:
  struct Holder {
    const Message* message;
    const Place* place;
  };
  struct Found {
    const Message* message;
    const Place* place;
    const FieldDescriptor* field;
  };

  // By name and reflection, since the four messages have these fields in common and no base class.
  std::optional<Found> Find(const char* name) const {
    std::optional<Found> found;
    for (const Holder& holder : holders_) {
      const FieldDescriptor* field = holder.message->GetDescriptor()->FindFieldByName(name);
      SPIRITLEVEL_CHECK(field != nullptr, "all four messages have every shared field");
      if (!holder.message->GetReflection()->HasField(*holder.message, field)) continue;
      if (found) RefuseTwice(name, *found->place, *holder.place);
      found = Found{holder.message, holder.place, field};
    }
    return found;
  }

  [[noreturn]] void RefuseTwice(const char* name, const Place& outer, const Place& inner) const {
    judge_.Refuse({inner, name},
                  fmt::format("is given a second time, after {}", judge_.Where({outer, name})),
                  "keep one of the two");
  }

  const Judge& judge_;
  Place top_;
  Place costs_{top_, "costs"};
  Place uniform_{costs_, "uniform"};
  Place table_{costs_, "table"};
  std::vector<Holder> holders_;
};

}  // namespace

Costs::Common ReadSharedCosts(const proto::Scenario& scenario, const Judge& judge) {
  const SharedCosts shared(scenario, judge);
  Costs::Common common;
  common.hop.latency = shared.Time("transfer_us");
  common.hop.busy = shared.Time("link_busy_us");
  common.hop.bytes = shared.Size("message_bytes");
  common.launch = shared.Time("launch_us");
  common.optimizer = shared.Time("optimizer_us");
  common.barrier = shared.Time("barrier_us");
  common.static_bytes = shared.Size("static_bytes");
  return common;
}

}  // namespace spiritlevel
