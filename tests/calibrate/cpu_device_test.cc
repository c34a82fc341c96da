// Real kernels on this machine, for structure only: how fast they are is nobody's business here.
#include "calibrate/cpu_device.h"

#include <gtest/gtest.h>

#include "calibrate/calibration.h"
#include "calibrate/plan.h"
#include "kernels/cpu/cores.h"

namespace spiritlevel {
namespace {

constexpr Bytes kLittle = 1 << 20;

TEST(CpuDevice, RunsEveryKindOfWorkThatIsPlanned) {
  const std::unique_ptr<Device> device = MakeCpuDevice(kLittle);
  for (const PlannedWork& work : MakePlan(/*quick=*/true, 4)) {
    if (work.round > 0) continue;
    const std::unique_ptr<Workload> workload =
        work.primitive == Primitive::kHandOver
            ? device->PrepareRoundTrip(static_cast<Bytes>(work.units))
            : device->Prepare(work.work);
    const Timing timing = device->Time(*workload, 2);
    EXPECT_GT(timing.wall, 0) << work.what;
    EXPECT_GE(timing.away, 0) << work.what;
    EXPECT_LE(timing.away, timing.wall) << work.what;
  }
}

// A wait for the other rank belongs to a hand-over; only kernels may take it off.
TEST(CpuDevice, TakesNothingOffAHandOver) {
  const std::unique_ptr<Device> device = MakeCpuDevice(kLittle);
  const std::unique_ptr<Workload> trip = device->PrepareRoundTrip(4'096);
  EXPECT_EQ(device->Time(*trip, 50).away, 0);
}

TEST(CpuDevice, OthersAreBusyWhileTheBodyRuns) {
  const std::unique_ptr<Device> device = MakeCpuDevice(kLittle);
  bool ran = false;
  const int others =
      device->WhileOthersRun(Kernel(Gemm{.m = 16, .n = 16, .k = 16}), [&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_EQ(others, device->machine().usable_cores - 1);
}

TEST(CpuDevice, GivesTheThreadItsCoresBack) {
  const std::vector<int> before = cpu::UsableCores();
  MakeCpuDevice(kLittle);
  EXPECT_EQ(cpu::UsableCores(), before);
}

TEST(CpuDevice, ATinyBudgetGivesAWholeProfile) {
  const std::unique_ptr<Device> device = MakeCpuDevice(kLittle);
  const Calibration c = Calibrate(*device, {.seconds = 0.2, .quick = true}, {});
  CheckProfile(c.profile);
  EXPECT_TRUE(c.complete);
  EXPECT_GT(c.left_out, 0);
  for (const PrimitiveResult& result : c.primitives) {
    EXPECT_GE(result.measurements.size(), 2u) << InfoOf(result.primitive).name;
  }
  EXPECT_EQ(c.slowdowns.size(), 3u);
  EXPECT_NE(c.machine.cpu, "");
  EXPECT_NE(c.software.blas, "");
}

TEST(Machine, CacheSizesAreOfThisMachineOrUnknown) {
  const MeasuredMachine machine = DescribeMachine();
  EXPECT_GE(machine.cores, machine.usable_cores);
  EXPECT_GE(machine.usable_cores, 1);
  for (const Cache& cache : machine.caches) EXPECT_LE(cache.bytes, LargestCache(machine));
  EXPECT_GE(ColdBytes(machine), Bytes{16} << 20);
  EXPECT_LE(ColdBytes(machine), Bytes{256} << 20);
}

}  // namespace
}  // namespace spiritlevel
