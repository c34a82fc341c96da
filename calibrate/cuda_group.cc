#include "calibrate/cuda_group.h"

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

using cuda::View;

constexpr auto kElement = cuda::ElementType::kBFloat16;

}  // namespace

// What one Run() posts, for all members that are here, and the buffers for it.
class CudaGroup::Exchange {
 public:
  Exchange(CudaGroup* group, TransferKind kind, Bytes bytes)
      : layer_(group->layer_), group_(group), kind_(kind), bytes_(bytes) {
    for (const Member& member : group->members_) {
      buffers_.push_back({CudaBuffers(layer_, member.device, BytesFrom(), group->l2_),
                          CudaBuffers(layer_, member.device, BytesTo(), group->l2_)});
    }
  }

  void Post() {
    for (Buffers& buffers : buffers_) {
      buffers.from_now = buffers.from.Next();
      buffers.to_now = buffers.to.Next();
    }
    if (kind_ == TransferKind::kMessage) {
      PostMessage(0, group_->size() == 1 ? 0 : 1);
      if (group_->size() > 1) PostMessage(1, 0);
      return;
    }
    layer_->BeginGroup();
    for (size_t i = 0; i < buffers_.size(); ++i) PostCollective(group_->members_[i], buffers_[i]);
    layer_->EndGroup();
  }

 private:
  struct Buffers {
    CudaBuffers from;
    CudaBuffers to;
    std::byte* from_now = nullptr;
    std::byte* to_now = nullptr;
  };

  Bytes Part() const { return bytes_ / group_->size(); }
  Bytes BytesFrom() const { return kind_ == TransferKind::kAllGather ? Part() : bytes_; }
  Bytes BytesTo() const {
    if (kind_ == TransferKind::kAllReduce) return cuda::SizeOf(kElement);  // it is done in place
    return kind_ == TransferKind::kReduceScatter ? Part() : bytes_;
  }

  void PostMessage(int sender, int receiver) {
    layer_->BeginGroup();
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const Member& member = group_->members_[i];
      const cuda::Communicator communicator = member.communicator.get();
      if (member.rank == sender) {
        layer_->Send(communicator, member.stream.get(), buffers_[i].from_now, bytes_, receiver);
      }
      if (member.rank == receiver) {
        layer_->Receive(communicator, member.stream.get(), buffers_[i].to_now, bytes_, sender);
      }
    }
    layer_->EndGroup();
  }

  void PostCollective(const Member& member, const Buffers& buffers) {
    const cuda::Communicator communicator = member.communicator.get();
    const cuda::Stream stream = member.stream.get();
    const auto view = [](std::byte* data, Bytes bytes) {
      return cuda::Dense(data, kElement, 1, bytes / cuda::SizeOf(kElement));
    };
    switch (kind_) {
      case TransferKind::kAllReduce:
        layer_->AllReduce(communicator, stream, view(buffers.from_now, bytes_),
                          cuda::Reduction::kSum);
        return;
      case TransferKind::kReduceScatter:
        layer_->ReduceScatter(communicator, stream, view(buffers.from_now, bytes_),
                              view(buffers.to_now, Part()));
        return;
      case TransferKind::kAllGather:
        layer_->AllGather(communicator, stream, buffers.from_now, buffers.to_now, Part());
        return;
      case TransferKind::kAllToAll:
        layer_->AllToAll(communicator, stream, buffers.from_now, buffers.to_now, Part());
        return;
      default:
        SPIRITLEVEL_CHECK(false, "a copy is no exchange");
    }
  }

  cuda::Layer* layer_;
  CudaGroup* group_;
  TransferKind kind_;
  Bytes bytes_;
  std::vector<Buffers> buffers_;
};

CudaGroup::Place CudaGroup::AllHere(cuda::Layer* layer, const std::vector<int>& devices) {
  return {.id = layer->MakeCommunicatorId(),
          .size = static_cast<int>(devices.size()),
          .first_rank = 0,
          .link = devices.size() == 1 ? LinkClass::kSameDevice : LinkClass::kSameNode};
}

CudaGroup::CudaGroup(cuda::Layer* layer, CudaTimer* timer, std::vector<int> devices, Bytes l2)
    : CudaGroup(layer, timer, devices, l2, AllHere(layer, devices)) {}

CudaGroup::CudaGroup(cuda::Layer* layer, CudaTimer* timer, std::vector<int> devices, Bytes l2,
                     Place place)
    : layer_(layer), timer_(timer), l2_(l2), place_(std::move(place)) {
  const int here = static_cast<int>(devices.size());
  SPIRITLEVEL_CHECK(here >= 1 && place_.first_rank >= 0 && place_.first_rank + here <= place_.size,
                    "ranks of a process are ranks of their group");
  for (int i = 0; i < here; ++i) {
    members_.push_back({.device = devices[i], .rank = place_.first_rank + i});
    // As in a run: what others wait for goes before what only computes.
    members_.back().stream = OwnStream(layer, devices[i], {}, /*urgent=*/true);
  }
  // As one, for each waits for the others.
  layer_->BeginGroup();
  for (Member& member : members_) {
    member.communicator = {
        layer, layer->MakeCommunicator(member.device, place_.id, place_.size, member.rank)};
  }
  layer_->EndGroup();
  for (const Member& member : members_) {
    timer_->Watch(member.communicator.get(), member.stream.get());
  }
}

CudaGroup::~CudaGroup() {
  for (const Member& member : members_) timer_->Forget(member.communicator.get());
}

Bytes CudaGroup::RoundedUp(TransferKind kind, Bytes bytes) const {
  if (kind == TransferKind::kMessage) return bytes;
  const Bytes unit = place_.size * 128;  // equal parts of whole lines
  return std::max<Bytes>(1, (bytes + unit - 1) / unit) * unit;
}

std::unique_ptr<CudaWorkload> CudaGroup::Prepare(TransferKind kind, Bytes bytes) {
  const auto exchange = std::make_shared<Exchange>(this, kind, RoundedUp(kind, bytes));
  const int launches = kind == TransferKind::kMessage && size() > 1 ? 2 : 1;
  return MakeCudaWorkload(members_.front().stream.get(), launches,
                          [exchange] { exchange->Post(); });
}

Samples CudaGroup::Measure(TransferKind kind, Bytes bytes) {
  constexpr int kSamples = 9;
  constexpr Bytes kLarge = Bytes{1} << 20;
  const std::unique_ptr<CudaWorkload> workload = Prepare(kind, bytes);
  const int ways = kind == TransferKind::kMessage && size() > 1 ? 2 : 1;
  Samples samples;
  samples.repeats = bytes < kLarge ? 20 : 4;
  const auto time = [&](int repeats) {
    return static_cast<double>(timer_->Time(*workload, repeats)) / repeats / ways;
  };
  samples.cold_ns = time(1);
  time(1);
  for (int i = 0; i < kSamples; ++i) samples.ns.push_back(time(samples.repeats));
  SumUp(&samples);
  constexpr double kKnown = 0.01;
  samples.steady = samples.interval <= kKnown;
  return samples;
}

}  // namespace spiritlevel
