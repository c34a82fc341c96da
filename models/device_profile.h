// DeviceProfile: how long the primitive kernels take on one device, as fitted by calibrate/.
//
// A value type; files and samples are calibrate's business. Every time is of one kernel by itself,
// with the other cores idle; `slowdown_all_cores` says what is lost when they are not, and
// WhileAllCoresAreBusy() takes it in.
//
//   TimeOf(profile, Gemm{.m = 512, .n = 1024, .k = 1024});
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/kernel.h"

namespace spiritlevel {

// base + units * per_unit.
struct LinearFit {
  double base_ns = 0;
  double per_unit_ns = 0;

  double At(double units) const { return base_ns + units * per_unit_ns; }

  friend bool operator==(const LinearFit&, const LinearFit&) = default;
};

// Time per unit against size: small kernels are slower for their size than large ones. Between two
// points the logarithm of the rate is linear in the logarithm of the size; outside them the rate of
// the nearest point holds.
struct RateCurve {
  struct Point {
    double units = 0;        // > 0, ascending
    double ns_per_unit = 0;  // > 0

    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;

  double At(double units) const;  // the time, not the rate

  friend bool operator==(const RateCurve&, const RateCurve&) = default;
};

// Time by size: a line, or a curve where one rate does not hold for all sizes, as at the edge of a
// cache.
struct SizeFit {
  LinearFit line{};
  RateCurve curve{};  // where it has points, it holds and the line does not

  bool is_curve() const { return !curve.points.empty(); }
  double At(double units) const { return is_curve() ? curve.At(units) : line.At(units); }

  friend bool operator==(const SizeFit&, const SizeFit&) = default;
};

// A thin product takes as long as one that is a little thicker, for operands are packed and results
// written in blocks: its curve is asked for 2 (m + pad.m) (n + pad.n) (k + pad.k) FLOP.
struct GemmPadding {
  double m = 0;
  double n = 0;
  double k = 0;

  friend bool operator==(const GemmPadding&, const GemmPadding&) = default;
};

double PaddedFlops(const Gemm& gemm, const GemmPadding& padding);

// --- What only GPUs have

// What moves bytes: copies of one device, messages and collectives between several.
enum class TransferKind : uint8_t {
  kHostToDevice,
  kDeviceToHost,
  kDeviceToDevice,  // within its memory
  kMessage,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
};
inline constexpr int kNumTransferKinds = 8;
std::string_view Name(TransferKind kind);  // "all_reduce"

// Where those who exchange are to each other.
enum class LinkClass : uint8_t { kSameDevice, kSameNode, kOtherNode };
inline constexpr int kNumLinkClasses = 3;
std::string_view Name(LinkClass link);  // "same_node"

// Unit: a byte. Of an all-reduce, of each rank's tensor; of a reduce-scatter and an all-gather, of
// the whole one; of an all-to-all, of all that a rank sends, to itself too.
struct TransferFit {
  TransferKind kind = TransferKind::kMessage;
  LinkClass link = LinkClass::kSameNode;
  int ranks = 1;
  SizeFit time{};

  friend bool operator==(const TransferFit&, const TransferFit&) = default;
};

// What is taken on a device beside tensors.
struct GpuMemory {
  Bytes context = 0;       // before anything was asked for; other processes' share is in it
  Bytes products = 0;      // the library's own, and the workspace that it is given
  Bytes communicator = 0;  // of one, once it has sent something; 0: was not measured
  Bytes rounding = 0;      // an allocation takes a multiple of this

  friend bool operator==(const GpuMemory&, const GpuMemory&) = default;
};

struct GpuProfile {
  std::vector<TransferFit> transfers{};  // no two of one kind, link and number of ranks
  // Products of fp8 operands, by Gemm::Use; empty where the device has none.
  std::vector<RateCurve> gemm_fp8{};
  std::vector<GemmPadding> gemm_fp8_padding{};
  double host_launch_ns = 0;  // that the host takes to post a kernel
  // By KernelClass, each >= 1: the factor on its kernels while messages pass beside them.
  std::array<double, kNumKernelClasses> slowdown_beside_transfers = {1, 1, 1};
  // By how much later a message is done that is posted while products hold the whole chip.
  double delay_behind_product_ns = 0;
  GpuMemory memory{};

  friend bool operator==(const GpuProfile&, const GpuProfile&) = default;
};

// Null if there is none.
const TransferFit* FindTransfer(const GpuProfile& profile, TransferKind kind, LinkClass link,
                                int ranks);

struct DeviceProfile {
  std::string name;
  DType dtype = DType::kFloat32;

  // By Gemm::Use; unit: a FLOP.
  std::array<RateCurve, kNumGemmUses> gemm;
  std::array<GemmPadding, kNumGemmUses> gemm_padding{};
  // Unit: a FLOP as Flops() counts it.
  SizeFit attention_forward;
  SizeFit attention_backward;
  // The time of one of RowsOf() rows; unit: a byte of that row, as BytesMoved() counts it. A norm's
  // backward as one kernel is both its halves.
  SizeFit norm_forward;
  SizeFit norm_input_grad;
  SizeFit norm_weight_grad;
  SizeFit embedding_forward;
  SizeFit embedding_backward;
  // Unit: a byte as BytesMoved() counts it.
  SizeFit elementwise;
  SizeFit loss_forward;
  SizeFit loss_backward;
  // Unit: a parameter of the rank. A line, for the step of a rank is a sum over its stages.
  LinearFit optimizer;

  double launch_ns = 0;            // of an op, once
  double transfer_latency_ns = 0;  // of a tensor from one rank to another
  double transfer_ns_per_byte = 0;
  // By KernelClass, each >= 1: the factor on its kernels while all ranks compute.
  std::array<double, kNumKernelClasses> slowdown_all_cores = {1, 1, 1};
  std::optional<GpuProfile> gpu{};  // none of a CPU

  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// Throws InputError, naming what, unless every number is finite and not negative, every curve has
// ascending points and a rate above 0, and each slow-down is at least 1.
void CheckProfile(const DeviceProfile& profile);

// The same device as it is for each of its ranks while all of them compute: every kernel takes its
// class's factor longer, the optimizer step that of what streams. Launches and messages stay.
DeviceProfile WhileAllCoresAreBusy(const DeviceProfile& profile);

// Halves rounded up. The profile is a checked one.
TimeNs TimeOf(const DeviceProfile& profile, const Kernel& kernel);

// The same before it is rounded, for sums over many.
double NanosecondsOf(const DeviceProfile& profile, const Kernel& kernel);

}  // namespace spiritlevel
