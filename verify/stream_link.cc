#include "verify/stream_link.h"

#include <algorithm>

namespace spiritlevel {

using cuda::Buffer;

void StreamLinks::Connect(const StreamPlan& plan) {
  const Program& program = plan.program();
  for (MessageId m = 0; m < static_cast<MessageId>(program.messages().size()); ++m) {
    const int32_t from = plan.stream_of(program.send_node(m));
    const int32_t to = plan.stream_of(program.receive_node(m));
    const int32_t lower = std::min(from, to);
    const int32_t upper = std::max(from, to);
    const int lower_device = devices_[plan.rank_of_stream(lower)];
    const int upper_device = devices_[plan.rank_of_stream(upper)];
    if (lower_device == upper_device) continue;
    const auto [at, is_new] = channels_.try_emplace({lower, upper});
    if (!is_new) continue;
    const cuda::CommunicatorId id = layer_.MakeCommunicatorId();
    layer_.BeginGroup();
    at->second.lower = layer_.MakeCommunicator(lower_device, id, 2, 0);
    at->second.upper = layer_.MakeCommunicator(upper_device, id, 2, 1);
    layer_.EndGroup();
  }
}

StreamLinks::~StreamLinks() {
  for (const auto& [lanes, channel] : channels_) {
    for (const cuda::Communicator one : {channel.lower, channel.upper}) {
      if (one != cuda::Communicator{}) layer_.Destroy(one);
    }
  }
  for (const cuda::Event event : orders_) layer_.Destroy(event);
}

Buffer StreamLinks::Move(const Side& sender, const Side& receiver, Buffer& data,
                         cuda::BufferPool& pool, cuda::Event arrival) {
  if (data.empty()) {
    Order(sender, receiver, arrival);
    return {};
  }
  return IsWithinDevice(sender, receiver) ? Copy(sender, receiver, data, pool, arrival)
                                          : SendAndReceive(sender, receiver, data, pool, arrival);
}

Buffer StreamLinks::Copy(const Side& sender, const Side& receiver, Buffer& data,
                         cuda::BufferPool& pool, cuda::Event arrival) {
  Buffer to = pool.Take(cuda::TensorUse::kCommunication, data.bytes(), sender.stream);
  layer_.Copy(sender.stream, to.data(), data.data(), data.bytes());
  data.UsedOn(sender.stream);
  to.UsedOn(receiver.stream);
  layer_.Record(arrival, sender.stream);
  layer_.Wait(receiver.stream, arrival);
  return to;
}

Buffer StreamLinks::SendAndReceive(const Side& sender, const Side& receiver, Buffer& data,
                                   cuda::BufferPool& pool, cuda::Event arrival) {
  const bool sender_is_lower = sender.lane < receiver.lane;
  const Channel& channel =
      channels_.at({std::min(sender.lane, receiver.lane), std::max(sender.lane, receiver.lane)});
  Buffer to = pool.Take(cuda::TensorUse::kCommunication, data.bytes(), receiver.stream);
  layer_.BeginGroup();
  layer_.Send(sender_is_lower ? channel.lower : channel.upper, sender.stream, data.data(),
              data.bytes(), sender_is_lower ? 1 : 0);
  layer_.Receive(sender_is_lower ? channel.upper : channel.lower, receiver.stream, to.data(),
                 data.bytes(), sender_is_lower ? 0 : 1);
  layer_.EndGroup();
  data.UsedOn(sender.stream);
  layer_.Record(arrival, receiver.stream);
  return to;
}

void StreamLinks::Order(const Side& sender, const Side& receiver, cuda::Event arrival) {
  orders_.push_back(layer_.MakeEvent(devices_[sender.rank], false));
  layer_.Record(orders_.back(), sender.stream);
  layer_.Wait(receiver.stream, orders_.back());
  layer_.Record(arrival, receiver.stream);
}

void StreamLinks::CheckHealth() {
  if (aborted_) return;
  for (const auto& [lanes, channel] : channels_) {
    for (const cuda::Communicator one : {channel.lower, channel.upper}) {
      if (const std::optional<std::string> why = layer_.Failure(one)) {
        throw cuda::GpuError(cuda::GpuErrorKind::kCommunication, "a message between devices", *why);
      }
    }
  }
}

void StreamLinks::Abort() noexcept {
  aborted_ = true;
  for (const auto& [lanes, channel] : channels_) {
    for (const cuda::Communicator one : {channel.lower, channel.upper}) {
      if (one != cuda::Communicator{}) layer_.Abort(one);
    }
  }
}

}  // namespace spiritlevel
