// The GPU's part of a profile file, as somebody may type it in.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "calibrate/profile_file.h"
#include "tests/base/input_error_of.h"
#include "tests/calibrate/fake_device.h"

namespace spiritlevel {
namespace {

using testing::HasSubstr;

Calibration WithGpu(const std::string& gpu) {
  std::string text = "dtype: 'bf16' launch { ns: 5 } slowdown_all_cores: 1\n";
  for (const PrimitiveInfo& info : Primitives()) {
    const bool as_curve = !MayBeLine(info.primitive);
    text += fmt::format("primitive {{ name: '{}' ", info.name);
    text += as_curve ? "curve { point { units: 1 ns_per_unit: 2 } } }\n"
                     : "line { base_ns: 3 ns_per_unit: 0.5 } }\n";
  }
  return ParseProfile(text + gpu, ProfileFormat::kText, "p");
}

std::string Complaint(const std::string& gpu) {
  return InputErrorOf([&] { WithGpu(gpu); });
}

const std::string kMessage =
    "transfer { kind: 'message' link: 'same_node' ranks: 2 line { base_ns: 9000 ns_per_unit: 0.02 "
    "} }";

TEST(GpuProfile, IsNotThereInAFileOfACpu) {
  const Calibration c = FakeCalibration();
  EXPECT_EQ(ProfileText(c, ProfileFormat::kText).find("gpu"), std::string::npos);
  EXPECT_FALSE(c.profile.gpu.has_value());
  EXPECT_FALSE(WithGpu("").profile.gpu.has_value());
}

TEST(GpuProfile, NeedsNothingAndTakesWhatIsThere) {
  EXPECT_EQ(WithGpu("gpu { }").profile.gpu, GpuProfile());
  const Calibration c = WithGpu("gpu { " + kMessage +
                                " memory { context: 500000000 } delay_behind_product { ns: 70 } "
                                "slowdown_beside_transfers { product: 1.1 attention: 1 "
                                "streaming: 1.5 } }");
  const TransferFit* const fit =
      FindTransfer(*c.profile.gpu, TransferKind::kMessage, LinkClass::kSameNode, 2);
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(fit->time.At(1'000), 9'020);
  EXPECT_EQ(FindTransfer(*c.profile.gpu, TransferKind::kMessage, LinkClass::kOtherNode, 2),
            nullptr);
  EXPECT_EQ(c.profile.gpu->memory.context, 500'000'000);
  EXPECT_EQ(c.profile.gpu->delay_behind_product_ns, 70);
  EXPECT_EQ(c.profile.gpu->slowdown_beside_transfers[2], 1.5);
}

TEST(GpuProfile, WhatIsNoGpusPartIsRefusedWithItsPlace) {
  EXPECT_THAT(Complaint("gpu { " + kMessage + " " + kMessage + " }"), HasSubstr("is there twice"));
  EXPECT_THAT(Complaint("gpu { transfer { kind: 'pigeon' link: 'same_node' line { } } }"),
              testing::AllOf(HasSubstr("p:17: gpu.transfer[0].kind"), HasSubstr("pigeon"),
                             HasSubstr("all_reduce")));
  EXPECT_THAT(Complaint("gpu { transfer { kind: 'message' link: 'wire' line { } } }"),
              HasSubstr("other_node"));
  EXPECT_THAT(Complaint("gpu { transfer { kind: 'message' link: 'same_node' } }"),
              HasSubstr("one line or one curve"));
  EXPECT_THAT(Complaint("gpu { memory { rounding: -1 } }"), HasSubstr("gpu.memory.rounding"));
  EXPECT_THAT(Complaint("gpu { host_launch { ns: -1 } }"), HasSubstr("gpu.host_launch.ns"));
  EXPECT_THAT(Complaint("gpu { partitions: 0 }"), HasSubstr("gpu.partitions"));
  EXPECT_THAT(Complaint("gpu { slowdown_beside_transfers { product: 0.9 attention: 1 streaming: 1 "
                        "} }"),
              HasSubstr("is below 1"));
  EXPECT_THAT(Complaint("gpu { product_fp8 { name: 'gemm_forward' } }"), HasSubstr("all three"));
  const std::string loss = "product_fp8 { name: 'loss_forward' } ";
  EXPECT_THAT(Complaint("gpu { " + loss + loss + loss + "}"), HasSubstr("gemm_input_grad"));
}

}  // namespace
}  // namespace spiritlevel
