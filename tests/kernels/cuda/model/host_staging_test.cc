#include "kernels/cuda/model/host_staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel::cuda {
namespace {

using testing::IsEmpty;

constexpr Bytes kMiB = Bytes{1} << 20;

std::vector<int32_t> Numbers(size_t count, int32_t first) {
  std::vector<int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

class Staging : public testing::TestWithParam<uint64_t> {
 protected:
  FakeLayer layer_{{.devices = 1, .seed = GetParam()}};
  Stream stream_ = layer_.MakeStream(0, Partition{}, false);
};

// The device may be far behind: a piece is not written before it was read.
TEST_P(Staging, UploadsWhatWasThereWhenItWasCalled) {
  constexpr size_t kCount = 100;
  constexpr int kUploads = 20;
  std::vector<void*> places;
  {
    HostStaging staging(&layer_, 0);
    std::vector<int32_t> source(kCount);
    for (int i = 0; i < kUploads; ++i) {
      source = Numbers(kCount, 1000 * i);
      places.push_back(layer_.Allocate(0, 400));
      staging.Upload(stream_, places.back(), source.data(), 400);
      std::fill(source.begin(), source.end(), -1);
    }
    for (int i = 0; i < kUploads; ++i) {
      std::vector<int32_t> read(kCount);
      staging.DownloadNow(stream_, read.data(), places[static_cast<size_t>(i)], 400);
      EXPECT_EQ(read, Numbers(kCount, 1000 * i)) << "upload " << i;
    }
  }
  for (void* const place : places) layer_.Free(0, place);
  EXPECT_THAT(layer_.misuses(), IsEmpty()) << layer_.Log();
  EXPECT_EQ(layer_.live_events(), 0);
}

TEST_P(Staging, TakesAPieceAgainOnceItWasRead) {
  HostStaging staging(&layer_, 0);
  void* const place = layer_.Allocate(0, 4096);
  const std::vector<int32_t> source = Numbers(1024, 0);
  for (int i = 0; i < 10; ++i) {
    staging.Upload(stream_, place, source.data(), 4096);
    layer_.Synchronize(stream_);
  }
  EXPECT_EQ(staging.held(), 4096);
  // While nothing is done, as many as were asked for.
  layer_.Stall(stream_);
  for (int i = 0; i < 10; ++i) staging.Upload(stream_, place, source.data(), 4096);
  EXPECT_EQ(staging.held(), 10 * 4096);
}

// However much there is to copy, the host's memory for it is bounded.
TEST(StagingOfMuch, GoesThroughPieces) {
  FakeLayer layer({});
  const Stream stream = layer.MakeStream(0, Partition{}, false);
  HostStaging staging(&layer, 0);
  const Bytes bytes = 40 * kMiB + 4;
  const std::vector<int32_t> source = Numbers(static_cast<size_t>(bytes / 4), 7);
  void* const place = layer.Allocate(0, bytes);
  staging.UploadNow(stream, place, source.data(), bytes);
  std::vector<int32_t> read(source.size());
  staging.DownloadNow(stream, read.data(), place, bytes);
  EXPECT_TRUE(read == source);
  EXPECT_LE(staging.held(), 32 * kMiB);
  layer.Free(0, place);
  EXPECT_THAT(layer.misuses(), IsEmpty());
}

// An event that does not say when a piece was read is not asked.
TEST_P(Staging, DoesNotTakeAPieceAgainWhoseEndIsNotKnown) {
  void* const first = layer_.Allocate(0, 64);
  void* const second = layer_.Allocate(0, 64);
  {
    HostStaging staging(&layer_, 0);
    const std::vector<int32_t> ones(16, 1);
    const std::vector<int32_t> twos(16, 2);
    layer_.FailCall("Record", 1, GpuErrorKind::kOther);
    EXPECT_THROW(staging.Upload(stream_, first, ones.data(), 64), GpuError);
    staging.Upload(stream_, second, twos.data(), 64);
    std::vector<int32_t> read(16);
    staging.DownloadNow(stream_, read.data(), first, 64);
    EXPECT_EQ(read, ones);
  }
  layer_.Free(0, first);
  layer_.Free(0, second);
  EXPECT_THAT(layer_.misuses(), IsEmpty()) << layer_.Log();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Staging, testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace spiritlevel::cuda
