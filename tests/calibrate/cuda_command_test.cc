// `spiritlevel calibrate --backend cuda` as a user has it, where it ends before it measures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/layer.h"
#include "tests/cli/run_binary.h"

namespace spiritlevel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

Outcome Run(const Folder& folder, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"calibrate", "-o", folder.Path("p.json")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunSpiritlevel(arguments);
}

void ExpectRefusal(std::vector<std::string> more, const std::string& what) {
  const Folder folder;
  const Outcome outcome = Run(folder, std::move(more));
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(what));
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(CalibrateCommand, WithoutADeviceSaysWhyAndExitsWithTwo) {
  const std::string why = cuda::WhyNoDevice(cuda::MakeCudaLayer().get());
  if (why.empty()) GTEST_SKIP() << "this machine has a device";
  ExpectRefusal({"--backend", "cuda"}, "--backend cuda: " + why);
  ExpectRefusal({"--backend", "cuda"}, "use --backend cpu");
}

TEST(CalibrateCommand, ADeviceThatNoMachineHasIsRefused) {
  ExpectRefusal({"--backend", "cuda", "--device", "4096"}, "--");
}

TEST(CalibrateCommand, RefusesWhatDoesNotBelongTogether) {
  ExpectRefusal({"--device", "0"}, "--device is of --backend cuda");
  ExpectRefusal({"--partitions", "2"}, "--partitions is of --backend cuda");
  ExpectRefusal({"--model", "config.json"}, "--model is of --backend cuda");
  ExpectRefusal({"--backend", "cuda", "--sequence", "128"}, "--sequence is of --model");
  ExpectRefusal({"--backend", "cuda", "--partitions", "0"}, "--partitions: 0 is not 1 or more");
  ExpectRefusal({"--backend", "rocm"}, "there are cpu and cuda");
}

TEST(CalibrateCommand, RefusesAModelItCannotReadBeforeItLooksForADevice) {
  const Folder folder;
  const std::string config = folder.Write("config.json", "{\"model_type\": \"abacus\"}");
  ExpectRefusal({"--backend", "cuda", "--model", config}, "--model: ");
  ExpectRefusal({"--backend", "cuda", "--model", config + ".none"}, "--model: ");
  ExpectRefusal({"--backend", "cuda", "--model", config, "--sequence", "0"},
                "--sequence: 0 is not 1 or more");
}

}  // namespace
}  // namespace spiritlevel
