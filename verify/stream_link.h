// StreamLinks: how messages go from one rank's stream to another's. Posted by one thread that posts
// both sides.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/buffer_pool.h"
#include "kernels/cuda/layer.h"
#include "sim/program.h"
#include "verify/stream_plan.h"

namespace spiritlevel {

class StreamLinks {
 public:
  struct Side {
    int rank = 0;
    int32_t lane = 0;  // the stream's number in the plan
    cuda::Stream stream{};
  };

  // `devices` by rank.
  StreamLinks(cuda::Layer& layer, std::span<const int> devices)
      : layer_(layer), devices_(devices) {}
  ~StreamLinks();
  StreamLinks(const StreamLinks&) = delete;
  StreamLinks& operator=(const StreamLinks&) = delete;

  // Between ranks on different devices each two lanes that send to each other have a communicator:
  // so it is of a pair of ranks or of a directed one, as the posting has lanes. All are made here,
  // before any message, since making one waits for both sides.
  void Connect(const StreamPlan& plan);

  // Posts the transfer of `data`, which may be freed then, into a buffer of `pool`, the
  // receiver's. `arrival`, an event of the receiver's device, is recorded behind it, and the
  // receiver's stream goes on behind it. Of no bytes: the order alone.
  cuda::Buffer Move(const Side& sender, const Side& receiver, cuda::Buffer& data,
                    cuda::BufferPool& pool, cuda::Event arrival);

  // Throws GpuError where a communicator has failed.
  void CheckHealth();
  // Streams that wait for a lost peer come free.
  void Abort() noexcept;

 private:
  using Lanes = std::pair<int32_t, int32_t>;  // the lower first
  struct Channel {
    cuda::Communicator lower{};
    cuda::Communicator upper{};
  };

  bool IsWithinDevice(const Side& a, const Side& b) const {
    return devices_[a.rank] == devices_[b.rank];
  }
  cuda::Buffer Copy(const Side& sender, const Side& receiver, cuda::Buffer& data,
                    cuda::BufferPool& pool, cuda::Event arrival);
  cuda::Buffer SendAndReceive(const Side& sender, const Side& receiver, cuda::Buffer& data,
                              cuda::BufferPool& pool, cuda::Event arrival);
  void Order(const Side& sender, const Side& receiver, cuda::Event arrival);

  cuda::Layer& layer_;
  std::span<const int> devices_;
  std::map<Lanes, Channel> channels_;
  std::vector<cuda::Event> orders_;  // behind messages without bytes
  bool aborted_ = false;
};

}  // namespace spiritlevel
