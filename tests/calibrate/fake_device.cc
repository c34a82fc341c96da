#include "tests/calibrate/fake_device.h"

#include <cmath>

namespace spiritlevel {
namespace {

class FakeWorkload : public Workload {
 public:
  explicit FakeWorkload(double ns_of_run) : ns(ns_of_run) {}
  void Run() override {}

  double ns;
};

struct Nanoseconds {
  const FakeTruth& truth;

  double operator()(const Gemm& g) const {
    const double units = PaddedFlops(g, {.m = truth.thin, .n = 0, .k = 0});
    // Between 0.5 and 16 MFLOP a straight line in logarithms, as a fitted curve can follow.
    return units * truth.gemm_rate * (1 + truth.gemm_small / (units + truth.gemm_small));
  }
  double operator()(const Attention& a) const {
    return (a.backward ? truth.attention_backward : truth.attention_forward).At(Flops(Kernel(a)));
  }
  double operator()(const Norm& n) const {
    switch (n.part) {
      case Norm::Part::kForward:
        return OfRows(truth.norm_forward, n);
      case Norm::Part::kInputGrad:
        return OfRows(truth.norm_input_grad, n);
      case Norm::Part::kWeightGrad:
        return OfRows(truth.norm_weight_grad, n);
      case Norm::Part::kBackward:
        break;
    }
    return 0;  // both halves are timed, never their sum
  }
  double operator()(const Embedding& e) const { return OfRows(truth.embedding, e); }
  double operator()(const Elementwise& e) const { return OfBytes(e); }
  double operator()(const Loss& l) const { return OfBytes(l); }
  double operator()(const Kernel& kernel) const { return std::visit(*this, kernel); }
  double operator()(const OptimizerStep& step) const {
    return truth.optimizer.At(static_cast<double>(step.parameters));
  }
  double operator()(const EmptyOp&) const { return truth.launch; }

  double OfBytes(const Kernel& kernel) const {
    return truth.bytes.At(static_cast<double>(BytesMoved(kernel)));
  }
  static double OfRows(const SizeFit& row, const Kernel& kernel) {
    const auto rows = static_cast<double>(RowsOf(kernel));
    return rows * row.At(static_cast<double>(BytesMoved(kernel)) / rows);
  }
};

}  // namespace

double FakeDevice::NanosecondsOf(const Work& work) const {
  return std::visit(Nanoseconds{truth_}, work);
}

std::unique_ptr<Workload> FakeDevice::Prepare(const Work& work) {
  return std::make_unique<FakeWorkload>(NanosecondsOf(work));
}

std::unique_ptr<Workload> FakeDevice::PrepareRoundTrip(Bytes bytes) {
  return std::make_unique<FakeWorkload>(2 * truth_.hand_over.At(static_cast<double>(bytes)));
}

Timing FakeDevice::Time(Workload& workload, int repeats) {
  ++times_called;
  std::uniform_real_distribution<double> uniform(0, 1);
  double ns = static_cast<FakeWorkload&>(workload).ns * repeats;
  ns *= 1 + truth_.noise * (2 * uniform(random_) - 1);
  if (uniform(random_) < truth_.outliers) ns *= 3;
  ns *= busy_;
  return {.wall = std::llround(ns)};
}

int FakeDevice::WhileOthersRun(const Work& work, const std::function<void()>& body) {
  busy_ = truth_.slowdown[static_cast<size_t>(ClassOf(std::get<Kernel>(work)))];
  body();
  busy_ = 1;
  return 1;
}

Calibration FakeCalibration(const FakeTruth& truth, bool quick, unsigned seed) {
  FakeDevice device(truth, seed);
  return Calibrate(device, {.seconds = 1'000, .quick = quick}, {});
}

}  // namespace spiritlevel
