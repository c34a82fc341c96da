#include "kernels/cuda/product_plans.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace spiritlevel::cuda {
namespace {

// Ends with its scope, also by an error.
class TimedEvent {
 public:
  TimedEvent(Layer* layer, int device) : layer_(layer), event_(layer->MakeEvent(device, true)) {}
  ~TimedEvent() { layer_->Destroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  Event get() const { return event_; }

 private:
  Layer* layer_;
  Event event_;
};

TimeNs MedianOf(std::vector<TimeNs> times) {
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : DivideHalfUp(times[middle - 1] + times[middle], 2);
}

}  // namespace

int64_t AlignmentOf(const void* memory) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(memory) | kMost;
  return static_cast<int64_t>(bits & (~bits + 1));
}

ProductPlans::ProductPlans(Layer* layer, int device, ProductPlanSettings settings)
    : layer_(layer), device_(device), settings_(settings) {
  SPIRITLEVEL_CHECK(settings.workspace >= 0 && settings.candidates >= 1 && settings.timed_runs >= 1,
                    "a plan has a candidate and a run");
  const DeviceInfo info = layer->Describe(device);
  architecture_ = info.major * 100 + info.minor;
}

ProductPlans::Key ProductPlans::KeyOf(const Product& p) const {
  return {architecture_,
          settings_.workspace,
          p.a.rows,
          p.a.cols,
          p.a.stride,
          static_cast<int64_t>(p.a.type),
          p.transpose_a,
          AlignmentOf(p.a.data),
          p.b.rows,
          p.b.cols,
          p.b.stride,
          static_cast<int64_t>(p.b.type),
          p.transpose_b,
          AlignmentOf(p.b.data),
          p.c.rows,
          p.c.cols,
          p.c.stride,
          static_cast<int64_t>(p.c.type),
          AlignmentOf(p.c.data),
          (p.beta != 0 ? 1 : 0) + (p.scale_a != nullptr ? 2 : 0) + (p.scale_b != nullptr ? 4 : 0)};
}

ProductPlans::Entry& ProductPlans::Find(const Product& product) {
  const Key key = KeyOf(product);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  ++questions_;
  std::vector<ProductAlgorithm> candidates =
      layer_->FindAlgorithms(device_, product, settings_.workspace, settings_.candidates);
  if (candidates.empty()) {
    throw GpuError(
        GpuErrorKind::kUnsupported, "FindAlgorithms for " + Describe(Call(product)),
        "no algorithm computes it within a workspace of " + FormatBytes(settings_.workspace));
  }
  Entry entry;
  entry.plan = {.algorithm = candidates.front(), .candidates = static_cast<int>(candidates.size())};
  entry.candidates = std::move(candidates);
  return plans_.emplace(key, std::move(entry)).first->second;
}

const ProductPlan& ProductPlans::PlanFor(const Product& product) { return Find(product).plan; }

const ProductAlgorithm& ProductPlans::For(const Product& product) {
  return Find(product).plan.algorithm;
}

TimeNs ProductPlans::Time(const Product& product, const ProductAlgorithm& algorithm, Stream stream,
                          void* workspace, Event begin, Event end) {
  std::vector<TimeNs> times;
  // The first run loads the kernel; it does not count.
  for (int run = -1; run < settings_.timed_runs; ++run) {
    layer_->Record(begin, stream);
    layer_->Multiply(stream, product, algorithm, workspace);
    layer_->Record(end, stream);
    layer_->Synchronize(stream);
    if (run >= 0) times.push_back(layer_->Between(begin, end));
  }
  return MedianOf(std::move(times));
}

const ProductPlan& ProductPlans::Tune(const Product& product, Stream stream, void* workspace) {
  Entry& entry = Find(product);
  if (entry.tuned) return entry.plan;
  const TimedEvent begin(layer_, device_);
  const TimedEvent end(layer_, device_);
  std::optional<TimeNs> best;
  ProductPlan plan = entry.plan;
  for (size_t i = 0; i < entry.candidates.size(); ++i) {
    TimeNs median = 0;
    try {
      median = Time(product, entry.candidates[i], stream, workspace, begin.get(), end.get());
    } catch (const GpuError& e) {
      // The heuristic may name what this device then refuses; the next one may do.
      if (e.kind() != GpuErrorKind::kUnsupported) throw;
      continue;
    }
    if (i == 0) plan.first_median = median;
    if (best && median >= *best) continue;
    best = plan.median = median;
    plan.algorithm = entry.candidates[i];
    plan.chosen = static_cast<int>(i);
  }
  if (!best) {
    throw GpuError(GpuErrorKind::kUnsupported, "Multiply for " + Describe(Call(product)),
                   "every algorithm that the library names refuses it");
  }
  entry.plan = std::move(plan);
  entry.tuned = true;
  return entry.plan;
}

}  // namespace spiritlevel::cuda
