#include "calibrate/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "calibrate/device.h"
#include "calibrate/fit.h"
#include "calibrate/plan.h"

namespace spiritlevel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReferenceEvery = 20;
constexpr TimeNs kReferenceBudget = 50'000'000;

TimeNs Nanoseconds(double seconds) { return static_cast<TimeNs>(seconds * 1e9); }

class Run {
 public:
  Run(Device& device, const CalibrationOptions& options, const CalibrationObserver& observer)
      : device_(device),
        options_(options),
        observer_(observer),
        references_(device.References()),
        plan_(options.plan.empty() ? MakePlan(options.quick, SizeOf(device.dtype()))
                                   : options.plan) {}

  Calibration Do() {
    Start();
    MeasureReference();
    MeasureLaunch();
    const auto later = std::find_if(plan_.begin(), plan_.end(),
                                    [](const PlannedWork& work) { return work.round > 0; });
    MeasureAll(plan_.begin(), later);
    if (!Stopped()) MeasureSlowdowns();
    MeasureAll(later, plan_.end());
    // Somebody else's work only ever makes a kernel slower: all are measured again, some while
    // after the first time, and the quietest visit counts.
    for (int visit = 1; visit < kVisits; ++visit) MeasureAll(plan_.begin(), plan_.end());
    MeasureReference();
    Finish();
    return std::move(c_);
  }

 private:
  using Planned = std::vector<PlannedWork>::const_iterator;

  void Start() {
    c_.backend = device_.name();
    c_.date = Today();
    c_.machine = device_.machine();
    c_.software = device_.software();
    c_.profile.dtype = device_.dtype();
    c_.profile.name = fmt::format("{}, {}", c_.machine.cpu, c_.backend);
    for (const PrimitiveInfo& info : Primitives()) {
      c_.primitives.push_back({.primitive = info.primitive});
    }
    total_ = kVisits * static_cast<int>(plan_.size()) + kSlowdowns;
    begin_ = Clock::now();
  }

  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  double Spent() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double Left() const { return options_.seconds - Spent(); }

  // Of what is left, for one of the measurements that are still to come.
  TimeNs Share() const {
    const int to_come = std::max(1, total_ - done_);
    return std::max(Nanoseconds(Left() / to_come), TimeNs{1'000'000});
  }

  void Tell(const std::string& what) {
    if (observer_) observer_(done_, total_, what);
    ++done_;
  }

  void Count(const Samples& samples) {
    c_.validity.samples += static_cast<int>(samples.ns.size());
    c_.validity.disturbed += samples.disturbed;
  }

  std::unique_ptr<Workload> PrepareReference(const Work& work) {
    std::unique_ptr<Workload> workload = device_.Prepare(work);
    if (workload == nullptr) {
      throw InputError("the device has no memory for the kernel that others are compared with",
                       "end what else uses its memory, and calibrate again");
    }
    return workload;
  }

  Samples TimeOn(Workload& workload, const StoppingRule& rule) {
    return Measure([&](int repeats) { return device_.Time(workload, repeats); }, rule);
  }

  void MeasureReference() {
    if (!reference_) reference_ = PrepareReference(references_.front());
    const StoppingRule rule{.budget = std::min(kReferenceBudget, Share() * 4)};
    c_.validity.reference_ns.push_back(TimeOn(*reference_, rule).median_ns);
    if (const auto reading = device_.Sensors()) c_.validity.sensors.push_back(*reading);
  }

  void MeasureLaunch() {
    const std::unique_ptr<Workload> empty = PrepareReference(EmptyOp{});
    c_.launch = TimeOn(*empty, {.budget = std::min<TimeNs>(100'000'000, Share())});
    c_.profile.launch_ns = c_.launch.median_ns;
  }

  void MeasureAll(Planned begin, Planned end) {
    for (Planned work = begin; work != end; ++work) {
      if (Stopped()) return;
      Measurement* const known = Find(*work);
      const bool needed = work->round == 0 && known == nullptr;
      if (!needed && !HasTimeFor(*work)) {
        ++done_;
        continue;
      }
      if (++since_reference_ >= kReferenceEvery) {
        since_reference_ = 0;
        MeasureReference();
      }
      Tell(work->what);
      const std::optional<Samples> samples = MeasureOne(*work);
      if (!samples) continue;
      if (known == nullptr) {
        Keep(*work, *samples);
      } else {
        KeepTheQuietest(*samples, known);
      }
    }
  }

  Measurement* Find(const PlannedWork& work) {
    for (Measurement& m : ResultOf(work).measurements) {
      if (m.what == work.what) return &m;
    }
    return nullptr;
  }

  PrimitiveResult& ResultOf(const PlannedWork& work) {
    return c_.primitives[static_cast<size_t>(work.primitive)];
  }

  // None where the device cannot run it.
  std::optional<Samples> MeasureOne(const PlannedWork& work) {
    const StoppingRule rule{.budget = Share()};
    const bool hand_over = work.primitive == Primitive::kHandOver;
    const std::unique_ptr<Workload> workload =
        hand_over ? device_.PrepareRoundTrip(static_cast<Bytes>(work.units))
                  : device_.Prepare(work.work);
    if (workload == nullptr) return std::nullopt;
    const Samples samples = hand_over ? TimeHandOver(*workload, rule) : TimeOn(*workload, rule);
    Count(samples);
    return samples;
  }

  void Keep(const PlannedWork& work, const Samples& samples) {
    Measurement m{
        .what = work.what, .units = work.units, .rows = work.rows, .held_out = work.held_out};
    if (const Kernel* const kernel = std::get_if<Kernel>(&work.work)) {
      if (const Gemm* const gemm = std::get_if<Gemm>(kernel)) m.gemm = *gemm;
    }
    m.samples = samples;
    ResultOf(work).measurements.push_back(std::move(m));
  }

  void KeepTheQuietest(const Samples& again, Measurement* m) {
    const double cold = m->samples.cold_ns;  // only the first visit's first run was that cold
    // The second quietest: how close another visit came.
    const double slower = std::max(again.quiet_ns, m->samples.quiet_ns);
    m->revisit_ns = m->revisit_ns > 0 ? std::min(slower, m->revisit_ns) : slower;
    if (again.quiet_ns < m->samples.quiet_ns) m->samples = again;
    m->samples.cold_ns = cold;
  }

  // One way is half of a round trip.
  Samples TimeHandOver(Workload& round_trip, const StoppingRule& rule) {
    return Measure(
        [&](int repeats) {
          const Timing both = device_.Time(round_trip, repeats);
          return Timing{.wall = DivideHalfUp(both.wall, 2), .away = 0};
        },
        rule);
  }

  // By what the last measured shape of the same primitive took for its size.
  bool HasTimeFor(const PlannedWork& work) {
    const double left = Left();
    if (left <= 0) return false;
    const auto& known = ResultOf(work).measurements;
    if (known.empty()) return true;
    const Measurement& last = known.back();
    const double one_run = last.samples.median_ns * 1e-9 *
                           (work.units * static_cast<double>(work.rows)) /
                           (last.units * static_cast<double>(last.rows));
    constexpr int kRuns = 7;  // the fewest samples and two to warm up
    constexpr double kMostOfTheRest = 0.2;
    return one_run * kRuns <= kMostOfTheRest * left;
  }

  void MeasureSlowdowns() {
    for (const Kernel& kernel : references_) MeasureSlowdown(kernel);
  }

  // Alone and beside the others in turn, so that a clock that drifts meets both alike.
  void MeasureSlowdown(const Kernel& kernel) {
    Tell("all cores busy: " + ToString(kernel));
    const std::unique_ptr<Workload> workload = PrepareReference(kernel);
    constexpr int kTurns = 3;
    const StoppingRule rule{.budget = std::min<TimeNs>(Share(), 400'000'000) / kTurns};
    const auto time = [&] {
      const Samples samples = TimeOn(*workload, rule);
      Count(samples);
      return samples.median_ns;
    };
    Slowdown slowdown{.what = ToString(kernel)};
    std::vector<double> alone;
    std::vector<double> busy;
    for (int turn = 0; turn < kTurns; ++turn) {
      alone.push_back(time());
      slowdown.others = device_.WhileOthersRun(kernel, [&] { busy.push_back(time()); });
    }
    slowdown.alone_ns = Median(alone);
    slowdown.busy_ns = Median(busy);
    // Noise may make a kernel seem faster beside others, which none is, or slower beside none.
    c_.profile.slowdown_all_cores[static_cast<size_t>(ClassOf(kernel))] =
        slowdown.others == 0 ? 1.0 : std::max(1.0, slowdown.factor());
    c_.slowdowns.push_back(slowdown);
  }

  void Finish() {
    const auto [low, high] =
        std::minmax_element(c_.validity.reference_ns.begin(), c_.validity.reference_ns.end());
    c_.validity.drift = *high / *low - 1;
    c_.validity.revisit_p90 = Quantile(Revisits(), 0.9);
    c_.complete = !Stopped();
    c_.left_out = static_cast<int>(std::count_if(
        plan_.begin(), plan_.end(), [this](const auto& work) { return Find(work) == nullptr; }));
    c_.seconds = Spent();
    FitProfile(&c_);
    CheckProfile(c_.profile);
  }

  // By how much the second quietest visits were slower than the quietest.
  std::vector<double> Revisits() const {
    std::vector<double> slower;
    for (const PrimitiveResult& result : c_.primitives) {
      for (const Measurement& m : result.measurements) {
        if (m.revisit_ns > 0) slower.push_back(m.revisit_ns / m.samples.quiet_ns - 1);
      }
    }
    return slower;
  }

  static constexpr int kSlowdowns = kNumKernelClasses;
  static constexpr int kVisits = 5;

  Device& device_;
  const CalibrationOptions& options_;
  const CalibrationObserver& observer_;
  std::array<Kernel, kNumKernelClasses> references_;
  std::vector<PlannedWork> plan_;
  Calibration c_;
  std::unique_ptr<Workload> reference_;
  Clock::time_point begin_;
  int total_ = 0;
  int done_ = 0;
  int since_reference_ = 0;
};

template <typename Result>
std::vector<FitPoint> PointsOf(const Result& result) {
  std::vector<FitPoint> points;
  for (const Measurement& m : result.measurements) {
    if (m.held_out || m.samples.quiet_ns <= 0) continue;
    points.push_back({m.units, m.samples.quiet_ns / static_cast<double>(m.rows)});
  }
  return points;
}

std::vector<GemmPoint> GemmPointsOf(const PrimitiveResult& result) {
  std::vector<GemmPoint> points;
  for (const Measurement& m : result.measurements) {
    if (!m.held_out && m.samples.quiet_ns > 0) points.push_back({*m.gemm, m.samples.quiet_ns});
  }
  return points;
}

void FitPrimitive(const PrimitiveResult& result, DeviceProfile* profile) {
  if (IsProduct(result.primitive)) {
    GemmFit fit = FitGemm(GemmPointsOf(result));
    SetFit(profile, result.primitive, {.curve = std::move(fit.curve)});
    SetPadding(profile, result.primitive, fit.padding);
  } else if (MayBeCurve(result.primitive)) {
    SetFit(profile, result.primitive, FitSizes(PointsOf(result)));
  } else {
    SetFit(profile, result.primitive, {.line = FitLine(PointsOf(result))});
  }
}

double Predicted(const DeviceProfile& profile, Primitive primitive, const Measurement& m) {
  if (m.gemm) return NanosecondsOf(profile, *m.gemm);
  return static_cast<double>(m.rows) * FitOf(profile, primitive).At(m.units);
}

template <typename Result>
void AddErrors(const Result& result, bool held_out, std::vector<double>* errors) {
  for (const Measurement& m : result.measurements) {
    if (m.held_out != held_out || m.samples.quiet_ns <= 0) continue;
    errors->push_back(std::abs(m.predicted_ns - m.samples.quiet_ns) / m.samples.quiet_ns);
  }
}

Errors SummedUp(const std::vector<double>& errors) {
  return {.count = static_cast<int>(errors.size()),
          .p50 = Quantile(errors, 0.5),
          .p90 = Quantile(errors, 0.9),
          .worst = Quantile(errors, 1)};
}

template <typename Result>
Errors ErrorsOf(const Result& result, bool held_out) {
  std::vector<double> errors;
  AddErrors(result, held_out, &errors);
  return SummedUp(errors);
}

// Of what has one curve of its own, and is no primitive of the profile's.
void FitFloat8(PrimitiveResult* result, GpuProfile* gpu) {
  GemmFit fit = FitGemm(GemmPointsOf(*result));
  for (Measurement& m : result->measurements) {
    m.predicted_ns = fit.curve.At(PaddedFlops(*m.gemm, fit.padding));
  }
  result->fitted = ErrorsOf(*result, false);
  result->held_out = ErrorsOf(*result, true);
  gpu->gemm_fp8.push_back(std::move(fit.curve));
  gpu->gemm_fp8_padding.push_back(fit.padding);
}

void FitTransfer(TransferResult* result, GpuProfile* gpu) {
  TransferFit fit{.kind = result->kind, .link = result->link, .ranks = result->ranks};
  fit.time = FitSizes(PointsOf(*result));
  for (Measurement& m : result->measurements) m.predicted_ns = fit.time.At(m.units);
  result->fitted = ErrorsOf(*result, false);
  result->held_out = ErrorsOf(*result, true);
  gpu->transfers.push_back(std::move(fit));
}

}  // namespace

double Validity::clock_change() const {
  int slowest = 0;
  int fastest = 0;
  for (const SensorReading& reading : sensors) {
    if (reading.clock_mhz <= 0) continue;  // the system does not say
    slowest = slowest == 0 ? reading.clock_mhz : std::min(slowest, reading.clock_mhz);
    fastest = std::max(fastest, reading.clock_mhz);
  }
  return slowest == 0 ? 0 : static_cast<double>(fastest) / slowest - 1;
}

bool Validity::throttled() const {
  return std::any_of(sensors.begin(), sensors.end(),
                     [](const SensorReading& reading) { return reading.throttled; });
}

bool Validity::doubtful_clocks() const {
  constexpr double kMostChange = 0.02;
  return throttled() || clock_change() > kMostChange;
}

bool Validity::unsteady() const {
  constexpr double kMostDrift = 0.05;
  constexpr double kMostDisturbed = 0.10;
  return drift > kMostDrift || disturbed > kMostDisturbed * samples;
}

bool Validity::noisy() const { return unsteady() || doubtful_clocks(); }

Calibration Calibrate(Device& device, const CalibrationOptions& options,
                      const CalibrationObserver& observer) {
  return Run(device, options, observer).Do();
}

void FitProfile(Calibration* c) {
  std::vector<std::string_view> missing;
  for (const PrimitiveResult& result : c->primitives) {
    if (!SufficeForFit(PointsOf(result))) missing.push_back(InfoOf(result.primitive).name);
  }
  if (!missing.empty()) {
    throw InputError(
        fmt::format("too little was measured for a profile: {}", fmt::join(missing, ", ")),
        "let it run to its end; --quick or a smaller --seconds ends sooner");
  }
  for (PrimitiveResult& result : c->primitives) {
    FitPrimitive(result, &c->profile);
    for (Measurement& m : result.measurements) {
      m.predicted_ns = Predicted(c->profile, result.primitive, m);
    }
    result.fitted = ErrorsOf(result, false);
    result.held_out = ErrorsOf(result, true);
  }
}

void FitGpu(Calibration* c) {
  SPIRITLEVEL_CHECK(c->gpu.has_value(), "there is a GPU's part to fit");
  GpuCalibration& measured = *c->gpu;
  GpuProfile& gpu = c->profile.gpu ? *c->profile.gpu : c->profile.gpu.emplace();
  gpu.transfers.clear();
  gpu.gemm_fp8.clear();
  gpu.gemm_fp8_padding.clear();
  std::erase_if(measured.transfers,
                [](const TransferResult& result) { return !SufficeForFit(PointsOf(result)); });
  for (TransferResult& result : measured.transfers) FitTransfer(&result, &gpu);
  const bool all =
      std::all_of(measured.products_fp8.begin(), measured.products_fp8.end(),
                  [](const PrimitiveResult& result) { return SufficeForFit(PointsOf(result)); });
  if (!all) measured.products_fp8.clear();
  for (PrimitiveResult& result : measured.products_fp8) FitFloat8(&result, &gpu);
}

Errors InTotal(const Calibration& c, bool held_out) {
  std::vector<double> errors;
  for (const PrimitiveResult& result : c.primitives) {
    AddErrors(result, held_out, &errors);
  }
  return SummedUp(errors);
}

}  // namespace spiritlevel
