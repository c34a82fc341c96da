// StreamWork: what one rank does in the nodes of a Program where work is posted on streams and done
// later. The same contract as RankWork (work.h), but for that.
//
// All functions are called from one thread, in an order in which what one posts may wait for what
// others have posted before. They post on the stream they are given and return; only Validate()
// may wait. Buffers are the caller's to keep from then on: it says on which streams else they are
// used.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "kernels/cuda/buffer_pool.h"
#include "kernels/cuda/layer.h"
#include "verify/payload.h"
#include "verify/work.h"

namespace spiritlevel {

// Ends a wait of the host, by an error, where what is waited for does not come.
class StreamHost {
 public:
  virtual ~StreamHost() = default;
  virtual void WaitFor(cuda::Event event) = 0;
};

struct StreamContext {
  const Program& program;
  int rank = 0;
  int device = 0;
  cuda::Stream compute{};
  cuda::Layer& layer;
  cuda::BufferPool& pool;
  StreamHost& host;
};

struct StreamOpCall {
  NodeId node = kNone;
  Op op{};
  Part part{};
  int iteration = 0;
  bool provisional = false;
  bool dropped = false;
  cuda::Stream stream{};
  cuda::Buffer input{};  // the work's to keep or to let go
};

class StreamWork {
 public:
  virtual ~StreamWork() = default;

  virtual cuda::Buffer RunOp(StreamOpCall& call) = 0;
  virtual std::pair<cuda::Buffer, cuda::Buffer> RunPair(StreamOpCall& first, StreamOpCall& second) {
    cuda::Buffer of_first = RunOp(first);
    return {std::move(of_first), RunOp(second)};
  }
  virtual void StepOptimizer(const StepCall& call, cuda::Stream stream) = 0;
  virtual void RollBack(const StepCall& call, cuda::Stream stream) = 0;
  // What it reads on the host it copies on `stream`, and waits for by StreamHost::WaitFor().
  virtual bool Validate(const ValidationCall& call, cuda::Stream stream) = 0;

  virtual cuda::Buffer Contribute(const SumCall& call, cuda::Stream stream) = 0;
  // On this device, in the members' order; read on `stream` only.
  virtual void Combine(const SumCall& call, cuda::Stream stream,
                       std::span<const cuda::Buffer* const> contributions) = 0;

  virtual Bytes TakePeakBytes() = 0;
  virtual void Abandon() noexcept = 0;
  // Behind the last node; everything on the rank's streams is done.
  virtual Payload Finish() { return {}; }
};

using StreamWorkFactory = std::function<std::unique_ptr<StreamWork>(const StreamContext&)>;

}  // namespace spiritlevel
