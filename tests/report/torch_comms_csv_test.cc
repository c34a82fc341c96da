#include "report/torch_comms_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"
#include "report/torch_csv.h"
#include "scenarios/torch_csv.h"
#include "sim/schedules/catalog.h"

namespace spiritlevel {
namespace {

using ::testing::HasSubstr;

constexpr TorchCommsOptions kBare = {.reduce_grad = false, .shards = false};

TEST(TorchCommsCsv, PutsASendBehindItsOpAndAReceiveBeforeItsOwn) {
  EXPECT_EQ(ToTorchCommsCsv(Schedule::Parse("0F0 0BW0\n1F0 1BW0\n")),
            "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n");
}

// Rank 0 sends its second forward before it asks for a gradient that is made after that forward;
// rank 1 takes both in the same order.
TEST(TorchCommsCsv, PostsWhatTwoRanksExchangeInOneOrderOnBoth) {
  EXPECT_EQ(ToTorchCommsCsv(Schedule::Parse("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n"), kBare),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(TorchCommsCsv, HandsOverOnARankWithoutMessages) {
  EXPECT_EQ(ToTorchCommsCsv(Schedule::Parse("0F0 3F0 3BW0 0B0 0W0\n1F0 2F0 2BW0 1BW0\n"), kBare),
            "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0I0,0W0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n");
}

TEST(TorchCommsCsv, SharesParametersOutWherePyTorchDoes) {
  EXPECT_EQ(ToTorchCommsCsv(Schedule::Parse("0F0 0BW0\n1F0 1BW0\n"), {.shards = true}),
            "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n");
}

// Every named schedule that PyTorch can hold, on every small shape: written, checked by
// TorchCommsObjection() before it is returned, and read back as the same orders.
TEST(TorchCommsCsv, EveryNamedScheduleIsWrittenAndReadBack) {
  int written = 0;
  for (const ScheduleInfo& info : AllSchedules()) {
    if (info.placement == "bidirectional") continue;
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const int micro_batches : {1, 2, 4, 6, 8, 16}) {
        const Shape shape{.ranks = ranks, .micro_batches = micro_batches};
        if (info.Refusal(shape)) continue;
        const Schedule schedule = info.Make(shape);
        for (const bool more : {false, true}) {
          const std::string csv = ToTorchCommsCsv(schedule, {.reduce_grad = more, .shards = more});
          const CsvSchedule back = ParseTorchCsv(csv, "back.csv");
          ASSERT_EQ(Schedule(back.orders), schedule)
              << info.name << ' ' << ranks << ' ' << micro_batches << '\n'
              << csv;
          ++written;
        }
      }
    }
  }
  EXPECT_GT(written, 300);
}

TEST(TorchCommsCsv, RefusesAStageOnTwoRanks) {
  const Schedule dualpipe = FindSchedule("dualpipe").Make({.ranks = 4, .micro_batches = 8});
  try {
    ToTorchCommsCsv(dualpipe);
    FAIL() << "it was written";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lies on rank"));
  }
}

// The checker by itself: each mistake is named.
TEST(TorchCommsObjection, AcceptsWhatRuns) {
  EXPECT_EQ(TorchCommsObjection("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), "");
}

TEST(TorchCommsObjection, NamesEachMistake) {
  const struct {
    const char* csv;
    const char* what;
  } cases[] = {
      {"0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0\n", "rank 0: 0B0 before its 0RECV_B0"},
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", "rank 1: 1F0 before its 1RECV_F0"},
      {"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "rank 0: 0SEND_F0 before it is"},
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", "rank 0: 0B0 waits for ever"},
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1SEND_B0\n", "is never met"},
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1RECV_F0,1F0,1B0,1SEND_B0\n", "is there already"},
      {"0F0,1F0,1SEND_F0\n2RECV_F0,1B0\n", "is of a stage of rank"},
      {"0F0,0SEND_F0\n1RECV_F0,1G0\n", "is not an action"},
      {"0F0,0SEND_F0\n", "has nobody to talk to"},
  };
  for (const auto& c : cases) EXPECT_THAT(TorchCommsObjection(c.csv), HasSubstr(c.what)) << c.csv;
}

// Both ranks receive first: on a channel of each direction this runs, on one for both it does not.
TEST(TorchCommsObjection, FindsTwoRanksThatReceiveFirst) {
  EXPECT_THAT(TorchCommsObjection("0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
                                  "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n"),
              HasSubstr("0RECV_B0 meets 1RECV_F1"));
}

// PyTorch's own file: the two that talk in it agree.
TEST(TorchCommsObjection, AcceptsPyTorchsOwnFile) {
  const char* root = std::getenv("SPIRITLEVEL_PUBLIC_DATA");
  if (root == nullptr || *root == '\0') GTEST_SKIP() << "SPIRITLEVEL_PUBLIC_DATA is not set";
  std::ifstream file(std::string(root) + "/pytorch_csv/zb1p_2rank_2stagep_comms.csv");
  const std::string csv(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(csv.empty());
  EXPECT_EQ(TorchCommsObjection(csv), "");
}

}  // namespace
}  // namespace spiritlevel
