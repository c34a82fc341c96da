#include "calibrate/cpu_device.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"
#include "calibrate/cpu_workloads.h"
#include "calibrate/operand_memory.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/channel.h"
#include "kernels/cpu/cores.h"

namespace spiritlevel {
namespace {

using Clock = std::chrono::steady_clock;

TimeNs Since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
}

// What this thread has computed so far, and not waited for its core.
TimeNs ThreadTime() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * TimeNs{1'000'000'000} + now.tv_nsec;
}

// Tensors of one size, used in turn so that they are as cold as other operands.
class Tensors {
 public:
  Tensors(Bytes bytes, Bytes cold_bytes, OperandMemory& memory)
      : bytes_(static_cast<size_t>(bytes)),
        // Apart by whole cache lines: two ranks would compete for one that they share.
        stride_((bytes_ + kLine - 1) / kLine * kLine),
        count_(std::max<size_t>(1, static_cast<size_t>(cold_bytes) / stride_)),
        storage_(memory.Borrow(static_cast<int64_t>(stride_ * count_ / sizeof(float)))) {}

  std::span<std::byte> Next() {
    at_ = at_ + 1 == count_ ? 0 : at_ + 1;
    std::byte* const begin = reinterpret_cast<std::byte*>(storage_.get());
    return {begin + at_ * stride_, bytes_};
  }

 private:
  static constexpr size_t kLine = 64;

  size_t bytes_;
  size_t stride_;
  size_t count_;
  size_t at_ = 0;
  OperandMemory::Loan storage_;
};

// A partner on another core sends back what it gets.
class RoundTrip : public Workload {
 public:
  RoundTrip(Bytes bytes, Bytes cold_bytes, const std::vector<int>& partner_cores,
            OperandMemory& memory)
      : tensors_(bytes, cold_bytes, memory),
        partner_([this, bytes, cold_bytes, partner_cores, &memory] {
          cpu::PinThisThread(partner_cores);
          Tensors own(bytes, cold_bytes, memory);
          while (true) {
            const std::span<std::byte> tensor = own.Next();
            if (!there_.Receive(tensor) || !back_.Send(tensor)) return;
          }
        }) {
    Run();  // both are there now
  }
  ~RoundTrip() override {
    there_.Close();
    back_.Close();
  }

  void Run() override {
    there_.Send(tensors_.Next());
    back_.Receive(tensors_.Next());
  }
  bool waits() const override { return true; }

 private:
  Tensors tensors_;
  cpu::Channel there_;
  cpu::Channel back_;
  std::jthread partner_;  // last, so that it ends before what it uses
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(Bytes cold_bytes)
      : cold_bytes_(cold_bytes),
        // Workloads round each operand up to whole lines.
        memory_(cold_bytes / static_cast<Bytes>(sizeof(float)) + (1 << 18)),
        machine_(DescribeMachine()),
        cores_(cpu::UsableCores()) {
    if (*cpu::MissingInstructions() != '\0') {
      throw InputError(fmt::format("this build uses {} instructions, and this processor has none",
                                   cpu::MissingInstructions()),
                       "build it on this machine, or anywhere with -DSPIRITLEVEL_NATIVE=OFF");
    }
    cpu::UseOneBlasThread();
    cpu::PinThisThread({cores_.front()});
  }
  ~CpuDevice() override { cpu::PinThisThread(cores_); }

  std::string_view name() const override { return "cpu"; }
  MeasuredMachine machine() const override { return machine_; }
  Software software() const override { return DescribeSoftware(); }

  std::unique_ptr<Workload> Prepare(const Work& work) override {
    return MakeCpuWorkload(work, cold_bytes_, memory_);
  }

  Timing Time(Workload& workload, int repeats) override {
    const TimeNs thread_begin = ThreadTime();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < repeats; ++i) workload.Run();
    const TimeNs wall = Since(begin);
    const TimeNs worked = ThreadTime() - thread_begin;
    return {.wall = wall, .away = workload.waits() ? 0 : std::max<TimeNs>(0, wall - worked)};
  }

  int WhileOthersRun(const Work& work, const std::function<void()>& body) override {
    std::atomic<int> running = 0;
    std::atomic<bool> stop = false;
    std::vector<std::jthread> others;
    for (size_t i = 1; i < cores_.size(); ++i) {
      others.emplace_back([&, i] {
        cpu::PinThisThread({cores_[i]});
        const std::unique_ptr<Workload> own = Prepare(work);
        own->Run();
        running.fetch_add(1);
        while (!stop.load(std::memory_order_relaxed)) own->Run();
      });
    }
    const int count = static_cast<int>(others.size());
    while (running.load() < count) std::this_thread::yield();
    body();
    stop = true;
    return count;
  }

  std::unique_ptr<Workload> PrepareRoundTrip(Bytes bytes) override {
    return std::make_unique<RoundTrip>(
        bytes, cold_bytes_, std::vector<int>{cores_[cores_.size() > 1 ? 1 : 0]}, memory_);
  }

 private:
  Bytes cold_bytes_;
  OperandMemory memory_;
  MeasuredMachine machine_;  // as it is before this thread is pinned
  std::vector<int> cores_;
};

}  // namespace

Bytes ColdBytes(const MeasuredMachine& machine) {
  return std::clamp<Bytes>(3 * LargestCache(machine), Bytes{16} << 20, Bytes{256} << 20);
}

std::unique_ptr<Device> MakeCpuDevice(Bytes cold_bytes) {
  return std::make_unique<CpuDevice>(cold_bytes);
}

}  // namespace spiritlevel
