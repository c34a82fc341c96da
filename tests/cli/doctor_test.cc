// The doctor: what it says of made-up machines, and of this one as a user has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/machine.h"
#include "tests/cli/run_binary.h"
#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel {
namespace {

using cuda::FakeLayer;
using cuda::FakeSettings;
using cuda::GpuErrorKind;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Machine Whole() {
  return {.processor = "Processor X",
          .cores = 8,
          .instructions = "AVX2",
          .missing_instructions = "",
          .blas = "OpenBLAS 0.3",
          .l1 = 32 << 10,
          .l2 = 1 << 20,
          .l3 = 0,
          .memory = Bytes{4} << 30,
          .has_mpi = true,
          .mpirun = "/usr/bin/mpirun"};
}

const Ability& Of(const std::vector<Ability>& findings, const std::string& part) {
  for (const Ability& finding : findings) {
    if (finding.part == part) return finding;
  }
  static const Ability none;
  ADD_FAILURE() << "nothing is said of " << part;
  return none;
}

void ExpectCannot(const Ability& finding, const std::string& why, const std::string& remedy) {
  EXPECT_FALSE(finding.can) << finding.part;
  EXPECT_THAT(finding.what, HasSubstr(why));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

TEST(Doctor, AWholeMachineCanDoEverything) {
  FakeLayer layer({.devices = 2});
  for (const Ability& finding : Examine(Whole(), &layer)) {
    EXPECT_TRUE(finding.can) << finding.part << ": " << finding.what;
    EXPECT_THAT(finding.what, Not(IsEmpty())) << finding.part;
    EXPECT_EQ(finding.remedy, "") << finding.part;
  }
}

TEST(Doctor, SaysOfTheProcessorWhatKernelsDependOn) {
  EXPECT_THAT(Of(Examine(Whole(), nullptr), "CPU kernels").what,
              AllOf(HasSubstr("Processor X with AVX2, L1 32 KiB, L2 1 MiB; OpenBLAS 0.3"),
                    Not(HasSubstr("L3"))));
  Machine old = Whole();
  old.missing_instructions = "AVX-512";
  ExpectCannot(Of(Examine(old, nullptr), "CPU kernels"), "Processor X lacks AVX-512",
               "-DSPIRITLEVEL_NATIVE=OFF");
}

TEST(Doctor, WithoutMpiOrItsLauncherSaysWhichIsMissing) {
  Machine machine = Whole();
  machine.mpirun = "";
  ExpectCannot(Of(Examine(machine, nullptr), "ranks over MPI"), "no mpirun on the path",
               "openmpi-bin");
  machine.has_mpi = false;
  ExpectCannot(Of(Examine(machine, nullptr), "ranks over MPI"), "this build is without MPI",
               "libopenmpi-dev");
}

TEST(Doctor, OneCoreIsSaidToRunOneRank) {
  Machine machine = Whole();
  machine.cores = 1;
  const Ability finding = Of(Examine(machine, nullptr), "ranks on this machine");
  EXPECT_THAT(finding.what, HasSubstr("1 usable core,"));
  EXPECT_THAT(finding.remedy, HasSubstr("emulated"));
}

TEST(Doctor, WithoutTheToolkitSaysSoAndNothingOfDevices) {
  const std::vector<Ability> findings = Examine(Whole(), nullptr);
  ExpectCannot(Of(findings, "CUDA in this build"), "without the CUDA toolkit", "nvcc");
  EXPECT_EQ(findings.back().part, "CUDA in this build");
}

TEST(Doctor, WithoutADriverSaysSoTwice) {
  FakeSettings settings{.devices = 0};
  settings.versions.driver = 0;
  FakeLayer layer(settings);
  const std::vector<Ability> findings = Examine(Whole(), &layer);
  EXPECT_TRUE(Of(findings, "CUDA in this build").can);
  ExpectCannot(Of(findings, "CUDA driver"), "no CUDA driver", "libcuda.so.1");
  ExpectCannot(Of(findings, "GPU"), "no CUDA driver", "where there is one");
}

TEST(Doctor, AnOldDriverDoesNotRunANewBuild) {
  FakeSettings settings;
  settings.versions.driver = 12080;
  FakeLayer layer(settings);
  ExpectCannot(Of(Examine(Whole(), &layer), "CUDA driver"), "the driver is for CUDA 12.8",
               "newer driver");
}

TEST(Doctor, LibrariesThatTheBuildLacksAreNamed) {
  FakeSettings settings;
  settings.versions.cublas_lt = 0;
  settings.versions.nccl = 0;
  settings.versions.cudnn = 0;
  FakeLayer layer(settings);
  const std::vector<Ability> findings = Examine(Whole(), &layer);
  ExpectCannot(Of(findings, "products on GPUs"), "cannot be loaded", "libcublas");
  ExpectCannot(Of(findings, "transfers between GPUs"), "without NCCL", "libnccl-dev");
  ExpectCannot(Of(findings, "cuDNN's attention"), "our own kernel", "");
}

TEST(Doctor, DescribesEachDevice) {
  FakeLayer layer({.devices = 2});
  const std::vector<Ability> findings = Examine(Whole(), &layer);
  for (const std::string name : {"GPU 0", "GPU 1"}) {
    EXPECT_THAT(Of(findings, name).what,
                AllOf(HasSubstr("Fake 1 at 0000:0" + name.substr(4)),
                      HasSubstr("compute capability 9.0, 132 SMs, 1 GiB of memory")));
    EXPECT_THAT(Of(findings, "SM partitions of " + name).what, HasSubstr("halves of 64 SMs"));
    EXPECT_THAT(Of(findings, "clocks of " + name).what, HasSubstr("SMs at 1980 MHz"));
  }
}

// 8.0 has no fp8, 8.9 has; 7.5 has no kernel of ours.
TEST(Doctor, KnowsWhichDevicesHaveFp8AndWhichAreTooOld) {
  const auto at = [](int major, int minor) {
    FakeSettings settings;
    settings.device.major = major;
    settings.device.minor = minor;
    FakeLayer layer(settings);
    return Examine(Whole(), &layer);
  };
  EXPECT_TRUE(Of(at(8, 0), "GPU 0").can);
  EXPECT_FALSE(Of(at(8, 0), "fp8 products on GPU 0").can);
  EXPECT_TRUE(Of(at(8, 9), "fp8 products on GPU 0").can);
  ExpectCannot(Of(at(7, 5), "GPU 0"), "compute capability 7.5", "8.0 and later");
}

TEST(Doctor, UnreadableClocksMakeMeasurementsUncheckedAndAreTold) {
  FakeSettings settings;
  settings.state = {};
  FakeLayer layer(settings);
  ExpectCannot(Of(Examine(Whole(), &layer), "clocks of GPU 0"), "NVML tells nothing",
               "libnvidia-ml.so.1");
}

TEST(Doctor, WhatADeviceRefusesIsAFindingAndTheOthersAreStillExamined) {
  FakeLayer no_green({.devices = 1});
  no_green.FailCall("Split", 1, GpuErrorKind::kUnsupported);
  const std::vector<Ability> findings = Examine(Whole(), &no_green);
  ExpectCannot(Of(findings, "SM partitions of GPU 0"), "not supported", "CUDA 12.5");
  EXPECT_TRUE(Of(findings, "clocks of GPU 0").can);

  FakeLayer broken({.devices = 2});
  broken.FailCall("Describe", 1, GpuErrorKind::kAsynchronous);
  const std::vector<Ability> of_two = Examine(Whole(), &broken);
  ExpectCannot(Of(of_two, "GPU 0"), "an earlier kernel failed", "");
  EXPECT_TRUE(Of(of_two, "GPU 1").can);
}

TEST(Doctor, TheTableHasALineForEachAndFitsATerminal) {
  const std::string table = AbilitiesTable(
      {{"one", true, "is there", ""},
       {"another part", false, std::string(60, 'x') + " " + std::string(60, 'y'), "get it"}});
  EXPECT_EQ(table,
            "one           can     is there\n"
            "another part  cannot  " +
                std::string(60, 'x') + "\n" + std::string(22, ' ') + std::string(60, 'y') +
                "; get it\n");
}

TEST(DoctorCommand, SaysOnEveryMachineWhatItCanDoAndExitsWithZero) {
  const Outcome outcome = RunSpiritlevel({"doctor"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("CPU kernels"), HasSubstr("ranks over MPI"),
                                 HasSubstr("CUDA in this build")));
}

TEST(DoctorCommand, WritesTheSameFindingsAsJson) {
  const Folder folder;
  const std::string path = folder.Path("findings.json");
  EXPECT_EQ(RunSpiritlevel({"doctor", "--json", path}).status, 0);
  const Outcome outcome = RunSpiritlevel({"doctor", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json findings = json::parse(outcome.out)["findings"];
  ASSERT_FALSE(findings.empty());
  for (const json& finding : findings) {
    EXPECT_TRUE(finding["can"].is_boolean());
    EXPECT_FALSE(finding["part"].get<std::string>().empty());
    EXPECT_FALSE(finding["what"].get<std::string>().empty());
  }
  EXPECT_THAT(folder.Names(), testing::ElementsAre("findings.json"));
}

TEST(DoctorCommand, ExitsWithTwoWhereItsOutputCannotBeWritten) {
  const Outcome outcome = RunSpiritlevel({"doctor", "--json", "/no/such/folder/x.json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/no/such/folder"));
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace spiritlevel
