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

  // 1 where none are given.
  int Buckets(const char* field, TimeNs reduction) const {
    const std::optional<Found> found = Find(field);
    if (!found) return 1;
    const Place place(*found->place, field);
    if (reduction == 0) {
      judge_.Refuse(place, "is given, but no time for what they hold",
                    "add reduction_us, or leave it out");
    }
    constexpr int kMost = 1000;
    return judge_.Count(place,
                        found->message->GetReflection()->GetInt32(*found->message, found->field),
                        kMost, "give the buckets of one rank's gradients, for example 4");
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

namespace {

constexpr const char* kSharedFields[] = {
    "transfer_us",  "link_busy_us", "launch_us", "optimizer_us", "barrier_us",      "message_bytes",
    "static_bytes", "reduction_us", "buckets",   "twin_sum_us",  "tied_exchange_us"};

}  // namespace

void ReadSharedCosts(const proto::Scenario& scenario, const Judge& judge, ModelSlices* slices) {
  const SharedCosts shared(scenario, judge);
  Costs::Common& common = slices->common;
  common.hop.latency = shared.Time("transfer_us");
  common.hop.busy = shared.Time("link_busy_us");
  common.hop.bytes = shared.Size("message_bytes");
  common.launch = shared.Time("launch_us");
  common.optimizer = shared.Time("optimizer_us");
  common.barrier = shared.Time("barrier_us");
  common.static_bytes = shared.Size("static_bytes");
  SharedSums& sums = slices->sums;
  sums.reduction = shared.Time("reduction_us");
  sums.buckets = shared.Buckets("buckets", sums.reduction);
  sums.twin = shared.Time("twin_sum_us");
  sums.tied_exchange = shared.Time("tied_exchange_us");
}

void RefuseSharedCosts(const proto::Scenario& scenario, const Judge& judge) {
  const Place top;
  for (const char* name : kSharedFields) {
    const FieldDescriptor* field = scenario.GetDescriptor()->FindFieldByName(name);
    SPIRITLEVEL_CHECK(field != nullptr, "every shared field stands at the top level");
    if (!scenario.GetReflection()->HasField(scenario, field)) continue;
    judge.Refuse({top, name}, "stands beside a model, whose costs come from its profile",
                 "leave it out");
  }
}

}  // namespace spiritlevel
