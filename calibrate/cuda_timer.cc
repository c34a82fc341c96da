#include "calibrate/cuda_timer.h"

#include <algorithm>
#include <cmath>

namespace spiritlevel {
namespace {

// More than a host takes to post a kernel, also a slow one.
constexpr TimeNs kPosting = 6'000;
// A device takes about a thousand posted kernels before it makes the host wait; and the gate, whose
// fills take some 20 us each, has to hold until all are posted.
constexpr int kMostPosted = 200;
constexpr int kMostGates = 64;
// Of what is timed beside others, which are posted with it.
constexpr int kMostBeside = 16;
constexpr int kTries = 8;

}  // namespace

CudaTimer::CudaTimer(cuda::Layer* layer, int device, Bytes l2)
    : layer_(layer),
      device_(device),
      gate_bytes_(std::max(l2, Bytes{1} << 12) / 4 * 4),
      gate_(CudaMemory::OnDevice(layer, device, gate_bytes_)),
      begin_(OwnTimedEvent(layer, device)),
      end_(OwnTimedEvent(layer, device)),
      open_(OwnTimedEvent(layer, device)) {}

int CudaTimer::MostAtOnce(const CudaWorkload& workload) const {
  return std::max(1, kMostPosted / std::max(1, workload.launches()));
}

void CudaTimer::MeasureGate(cuda::Stream stream) {
  const cuda::Fill fill{
      .to = cuda::Dense(gate_.data(), cuda::ElementType::kFloat32, 1, gate_bytes_ / 4)};
  for (int run = 0; run < 2; ++run) {  // the first loads the kernel
    layer_->Record(begin_.get(), stream);
    layer_->Launch(stream, fill);
    layer_->Record(end_.get(), stream);
    layer_->Synchronize(stream);
  }
  gate_ns_ = std::max<TimeNs>(1, layer_->Between(begin_.get(), end_.get()));
}

// What takes longer than its posting needs no more than to be posted before the first of it is
// done; the first time nobody knows.
void CudaTimer::PostGate(const CudaWorkload& workload, int repeats) {
  if (gate_ns_ == 0) MeasureGate(workload.stream());
  const int launches = std::max(1, workload.launches());
  const bool is_long = workload.usual_ns > 2 * kPosting * launches;
  int posted = (is_long ? 1 : repeats) * launches;
  for (const Other& other : others_) posted += (repeats + 1) * 2 * other.workload->launches();
  const TimeNs fills = (posted * kPosting + gate_ns_ - 1) / gate_ns_;
  const cuda::Fill fill{
      .to = cuda::Dense(gate_.data(), cuda::ElementType::kFloat32, 1, gate_bytes_ / 4)};
  for (TimeNs i = 0; i < std::clamp<TimeNs>(fills, 1, kMostGates); ++i) {
    layer_->Launch(workload.stream(), fill);
  }
}

TimeNs CudaTimer::TimeSome(CudaWorkload& workload, int repeats) {
  PostGate(workload, repeats);
  layer_->Record(begin_.get(), workload.stream());
  for (int i = 0; i < repeats; ++i) workload.Run();
  layer_->Record(end_.get(), workload.stream());
  layer_->Synchronize(workload.stream());
  return layer_->Between(begin_.get(), end_.get());
}

// True if the others were still at it when the last timed run ended.
bool CudaTimer::PostBeside(CudaWorkload& workload, int repeats) {
  PostGate(workload, repeats);
  layer_->Record(open_.get(), workload.stream());
  for (Other& other : others_) {
    const cuda::Stream stream = other.workload->stream();
    layer_->Wait(stream, open_.get());
    other.workload->Run();
    layer_->Record(other.begun.get(), stream);
    other.workload->Run();
    layer_->Wait(workload.stream(), other.begun.get());
  }
  layer_->Record(begin_.get(), workload.stream());
  for (int i = 0; i < repeats; ++i) {
    workload.Run();
    for (Other& other : others_) {
      const int from = static_cast<int>(std::ceil(i * other.runs_for_one));
      const int to = static_cast<int>(std::ceil((i + 1) * other.runs_for_one));
      for (int run = from; run < to; ++run) other.workload->Run();
    }
  }
  layer_->Record(end_.get(), workload.stream());
  for (Other& other : others_) layer_->Record(other.done.get(), other.workload->stream());
  layer_->Synchronize(workload.stream());
  bool covered = true;
  for (Other& other : others_) {
    layer_->Synchronize(other.workload->stream());
    if (layer_->Between(end_.get(), other.done.get()) >= 0) continue;
    covered = false;
    other.runs_for_one *= 2;
  }
  return covered;
}

TimeNs CudaTimer::TimeSomeBeside(CudaWorkload& workload, int repeats) {
  for (int i = 0; i < kTries; ++i) {
    if (PostBeside(workload, repeats)) return layer_->Between(begin_.get(), end_.get());
  }
  throw cuda::GpuError(cuda::GpuErrorKind::kOther, "a measurement beside other work",
                       "what runs beside is always over first");
}

void CudaTimer::Watch(cuda::Communicator communicator, cuda::Stream stream) {
  watched_.push_back({communicator, stream});
}

void CudaTimer::Forget(cuda::Communicator communicator) {
  std::erase_if(watched_,
                [&](const Watched& watched) { return watched.communicator == communicator; });
}

// Returns what the first of them had failed of; empty if none had.
std::string CudaTimer::EndCommunicators() noexcept {
  std::string why;
  for (const Watched& watched : watched_) {
    try {
      const auto failure = layer_->Failure(watched.communicator);
      if (why.empty() && failure) why = *failure;
    } catch (const std::exception&) {
      // The first error is the one that is told.
    }
  }
  for (const Watched& watched : watched_) layer_->Abort(watched.communicator);
  for (const Watched& watched : watched_) {
    try {
      layer_->Synchronize(watched.stream);
    } catch (const std::exception&) {
      // As above; the stream is of no further use.
    }
  }
  return why;
}

template <typename Body>
auto CudaTimer::Guarded(Body body) {
  try {
    return body();
  } catch (const cuda::GpuError& error) {
    const std::string why = EndCommunicators();
    if (why.empty()) throw;
    throw cuda::GpuError(cuda::GpuErrorKind::kCommunication, error.what(), why);
  }
}

TimeNs CudaTimer::Time(CudaWorkload& workload, int repeats) {
  return Guarded([&] { return TimeAll(workload, repeats); });
}

TimeNs CudaTimer::TimeAll(CudaWorkload& workload, int repeats) {
  const int most = others_.empty() ? MostAtOnce(workload) : kMostBeside;
  TimeNs sum = 0;
  for (int left = repeats; left > 0;) {
    const int now = std::min(left, most);
    const TimeNs time = others_.empty() ? TimeSome(workload, now) : TimeSomeBeside(workload, now);
    workload.usual_ns = time / now;
    sum += time;
    left -= now;
  }
  return sum;
}

TimeNs CudaTimer::TimeOfPosting(CudaWorkload& workload, int repeats) {
  return Guarded([&] {
    layer_->Record(begin_.get(), workload.stream());
    for (int i = 0; i < repeats; ++i) workload.Run();
    layer_->Record(end_.get(), workload.stream());
    layer_->Synchronize(workload.stream());
    return layer_->Between(begin_.get(), end_.get());
  });
}

TimeNs CudaTimer::TimeBehind(CudaWorkload& product, CudaWorkload& message) {
  return Guarded([&] {
    PostGate(product, 3);
    product.Run();
    layer_->Record(open_.get(), product.stream());
    product.Run();
    product.Run();
    layer_->Wait(message.stream(), open_.get());
    layer_->Record(begin_.get(), message.stream());
    message.Run();
    layer_->Record(end_.get(), message.stream());
    layer_->Synchronize(message.stream());
    layer_->Synchronize(product.stream());
    return layer_->Between(begin_.get(), end_.get());
  });
}

void CudaTimer::Beside(const std::vector<CudaWorkload*>& others,
                       const std::function<void()>& body) {
  struct Forget {
    std::vector<Other>* others;
    ~Forget() { others->clear(); }
  } forget{&others_};
  for (CudaWorkload* const other : others) {
    others_.push_back({.workload = other,
                       .begun = OwnTimedEvent(layer_, device_),
                       .done = OwnTimedEvent(layer_, device_)});
  }
  body();
}

}  // namespace spiritlevel
