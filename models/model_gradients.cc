#include "models/model_gradients.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "models/stages.h"

namespace spiritlevel {
namespace {

Bytes GradientBytes(int64_t parameters, DType dtype) {
  return parameters * BytesPerParameter(dtype).gradient;
}

// W comes down the blocks, so the gradients of the last are done first. A bucket takes as many
// whole blocks as stay within the limit, and one at least.
std::vector<GradientBucket> BucketsOf(const StageBlocks& stage, const ModelRun& run,
                                      const DeviceProfile& profile) {
  std::vector<GradientBucket> buckets;
  double ns = 0;
  Bytes bytes = 0;
  const auto close = [&] {
    // A share of nothing would be no part of W at all.
    const auto share = static_cast<int64_t>(std::floor(ns + 0.5));
    buckets.push_back(
        {.share = std::max<int64_t>(1, share), .sum = RingSum(bytes, run.data_parallel, profile)});
    ns = 0;
    bytes = 0;
  };
  for (auto block = stage.rbegin(); block != stage.rend(); ++block) {
    const Bytes more = GradientBytes(block->parameters, run.dtype);
    if (bytes > 0 && bytes + more > run.bucket_bytes) close();
    bytes += more;
    ns += NanosecondsOf(profile, *block, Pass::kW);
  }
  // A stage without layers has one all the same, of nothing.
  if (bytes > 0 || buckets.empty()) close();
  return buckets;
}

}  // namespace

GradientSum RingSum(Bytes bytes, int members, const DeviceProfile& profile) {
  if (bytes == 0) return {};
  const double steps = 2.0 * (members - 1);
  const double ns = steps / members * static_cast<double>(bytes) * profile.transfer_ns_per_byte +
                    steps * profile.transfer_latency_ns;
  return {.bytes = bytes, .duration = RoundedTime(ns, "a sum of gradients")};
}

GradientSums SumsOf(const Architecture& a, const ModelRun& run,
                    const std::vector<StageBlocks>& stages, const DeviceProfile& profile) {
  GradientSums sums;
  for (const StageBlocks& stage : stages) {
    int64_t parameters = 0;
    for (const StageBlock& block : stage) parameters += block.parameters;
    sums.twins.push_back(RingSum(GradientBytes(parameters, run.dtype), 2, profile));
    if (run.data_parallel > 1) {
      sums.buckets.push_back(BucketsOf(stage, run, profile));
    }
  }
  if (a.tied_embeddings && stages.size() > 1) {
    const Bytes bytes = GradientBytes(CountParameters(a).embedding, run.dtype);
    sums.tied.push_back(RingSum(bytes, 2, profile));
  }
  return sums;
}

}  // namespace spiritlevel
