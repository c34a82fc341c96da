// Calibration: measures a device, fits a profile to it, and judges the fit.
//
//   const std::unique_ptr<Device> device = MakeCpuDevice(ColdBytes(DescribeMachine()));
//   const Calibration c = Calibrate(*device, {.seconds = 45}, {});
//   c.profile;                               // the numbers for models/
//   InTotal(c, /*held_out=*/true).p90;       // 0.06: nine in ten unseen shapes within 6 %
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/machine.h"
#include "calibrate/measure.h"
#include "calibrate/plan.h"
#include "calibrate/primitive.h"

namespace spiritlevel {

struct Measurement {
  std::string what;  // "gemm 512 x 1024 x 1024 forward"
  double units = 0;  // as the primitive's fit counts; of one row where there are more
  int64_t rows = 1;
  bool held_out = false;
  std::optional<Gemm> gemm{};  // of a product: its fit asks for more than its FLOP
  Samples samples{};           // of the quietest visit
  double revisit_ns = 0;    // the quiet time of the second quietest; 0 where there was time for one
  double predicted_ns = 0;  // by the fit

  friend bool operator==(const Measurement&, const Measurement&) = default;
};

// Of |predicted - measured| / measured.
struct Errors {
  int count = 0;
  double p50 = 0;
  double p90 = 0;
  double worst = 0;

  friend bool operator==(const Errors&, const Errors&) = default;
};

struct PrimitiveResult {
  Primitive primitive = Primitive::kGemmForward;
  std::vector<Measurement> measurements{};
  Errors fitted{};    // of the shapes that the fit was made of
  Errors held_out{};  // of those it never saw

  friend bool operator==(const PrimitiveResult&, const PrimitiveResult&) = default;
};

// How much longer a kernel takes while all other cores run the same.
struct Slowdown {
  std::string what;
  int others = 0;
  double alone_ns = 0;
  double busy_ns = 0;

  double factor() const { return alone_ns > 0 ? busy_ns / alone_ns : 1; }
  friend bool operator==(const Slowdown&, const Slowdown&) = default;
};

// Whether the machine held still. One kernel is timed again and again between the others.
struct Validity {
  std::vector<double> reference_ns;
  double drift = 0;  // largest over smallest reference time, less 1
  int samples = 0;
  int disturbed = 0;  // of these, taken while the device was away
  // For nine in ten shapes the second quietest visit came this close to the quietest.
  double revisit_p90 = 0;
  std::vector<SensorReading> sensors{};  // with the reference times; empty where there are none

  double clock_change() const;  // the fastest clock over the slowest, less 1
  bool throttled() const;
  bool doubtful_clocks() const;  // throttled, or a change of more than 2 %
  bool unsteady() const;         // the reference drifted, or too many samples were disturbed
  bool noisy() const;            // either
  friend bool operator==(const Validity&, const Validity&) = default;
};

// Times over sizes of one kind of transfer.
struct TransferResult {
  TransferKind kind = TransferKind::kMessage;
  LinkClass link = LinkClass::kSameNode;
  int ranks = 1;
  std::vector<Measurement> measurements{};
  Errors fitted{};
  Errors held_out{};

  friend bool operator==(const TransferResult&, const TransferResult&) = default;
};

// What a GPU has beside the primitives.
struct GpuCalibration {
  int partitions = 1;  // equal parts of its SMs, of which one was measured
  std::vector<TransferResult> transfers{};
  std::vector<PrimitiveResult> products_fp8{};  // by Gemm::Use; empty where it has none
  Samples host_launch{};
  std::vector<Slowdown> beside_transfers{};  // one for each KernelClass, in their order
  Samples transfer_alone{};
  Samples transfer_behind_product{};
  std::vector<std::string> left_out{};  // what could not be measured, and why

  friend bool operator==(const GpuCalibration&, const GpuCalibration&) = default;
};

struct Calibration {
  DeviceProfile profile;
  std::string backend;
  std::string date;
  MeasuredMachine machine;
  Software software;
  double seconds = 0;    // it took
  bool complete = true;  // false: stopped before everything planned was measured
  int left_out = 0;      // planned shapes that there was no time for
  Samples launch;
  std::vector<PrimitiveResult> primitives;  // all of them, in their order
  std::vector<Slowdown> slowdowns;          // one for each KernelClass, in their order
  Validity validity;
  std::optional<GpuCalibration> gpu{};

  friend bool operator==(const Calibration&, const Calibration&) = default;
};

struct CalibrationOptions {
  double seconds = 45;
  bool quick = false;                       // fewer shapes
  const std::atomic<bool>* stop = nullptr;  // when it turns true, no new measurement is begun
  std::vector<PlannedWork> plan{};          // empty: MakePlan()'s
};

// Told before each measurement.
using CalibrationObserver = std::function<void(int done, int total, const std::string& what)>;

class Device;

// Throws InputError when it was stopped before there was enough for every fit.
Calibration Calibrate(Device& device, const CalibrationOptions& options,
                      const CalibrationObserver& observer);

// Fits of all primitives, and their errors; `c->profile` keeps what is no fit. Throws InputError
// naming the primitives of which too little was measured.
void FitProfile(Calibration* c);

// Fits of what a GPU has beside the primitives. Of what was measured at fewer than two sizes none
// is kept.
void FitGpu(Calibration* c);

// Over all primitives.
Errors InTotal(const Calibration& c, bool held_out);

}  // namespace spiritlevel
