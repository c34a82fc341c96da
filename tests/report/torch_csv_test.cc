#include "report/torch_csv.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/check.h"
#include "scenarios/torch_csv.h"
#include "sim/schedules/catalog.h"
#include "sim/schedules/generators.h"

namespace spiritlevel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <class Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
    return "no error";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(TorchCsv, WritesOneRowForEachRankInPyTorchsLetters) {
  EXPECT_EQ(ToTorchCsv(Schedule::Parse("0F0 0F1 0B0 0W0 0BW1\n"
                                       "1F0 1BW0 1F1 1BW1\n")),
            "0F0,0F1,0I0,0W0,0B1\n"
            "1F0,1B0,1F1,1B1\n");
}

TEST(TorchCsv, WritesAPairAsOneCell) {
  const std::string csv = ToTorchCsv(Schedule(DualPipeV(2, 4)));
  EXPECT_EQ(csv,
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,"
            "(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3\n"
            "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,"
            "(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

// Every named schedule, over a small world of shapes.
TEST(TorchCsv, WhatIsWrittenReadsBackEqual) {
  std::set<std::string_view> written;
  for (const ScheduleInfo& info : AllSchedules()) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int micro_batches = 1; micro_batches <= 14; ++micro_batches) {
        for (int stages_per_rank = 1; stages_per_rank <= 3; ++stages_per_rank) {
          const Shape shape{
              .ranks = ranks, .micro_batches = micro_batches, .stages_per_rank = stages_per_rank};
          if (info.Refusal(shape)) continue;
          SCOPED_TRACE(fmt::format("{}, {} ranks, {} micro-batches, {} stages a rank", info.name,
                                   ranks, micro_batches, stages_per_rank));
          const Schedule schedule = info.Make(shape);
          if (!schedule.one_rank_per_stage()) {
            EXPECT_EQ(info.name, "dualpipe");
            EXPECT_THROW(ToTorchCsv(schedule), InputError);
            continue;
          }
          const CsvSchedule csv = ParseTorchCsv(ToTorchCsv(schedule), "written.csv");
          ASSERT_EQ(csv.orders, schedule.ToOrders());
          EXPECT_EQ(csv.dialect, CsvDialect::kCurrent);
          EXPECT_TRUE(csv.notes.empty() && !csv.had_blanks && !csv.had_communication);
          written.insert(info.name);
        }
      }
    }
  }
  EXPECT_EQ(written.size(), AllSchedules().size() - 1);  // all but dualpipe
}

TEST(TorchCsv, DualPipeIsRefusedWithAWayOut) {
  const Schedule schedule(DualPipe(8, 20));
  const std::string expected =
      "torch-csv: stage 0 lies on rank 0 and on rank 7\n"
      "    PyTorch builds each stage on one rank, so that DualPipe cannot be written;\n"
      "    use dualpipe-v";
  EXPECT_EQ(ErrorOf([&] { ToTorchCsv(schedule); }), expected);
  EXPECT_EQ(ErrorOf([&] { DescribeTorchPlacement(schedule); }), expected);
}

TEST(TorchCsv, LossesOutOfOrderAreRefused) {
  const Schedule schedule = Schedule::Parse(
      "0F0 0F1 0F2 0BW0 0BW1 0BW2\n"
      "1F0 1F2 1F1 1BW0 1BW1 1BW2\n");
  EXPECT_THAT(ErrorOf([&] { ToTorchCsv(schedule); }),
              HasSubstr("torch-csv: rank 1: 1F2 runs before 1F1\n"));
  // Only the last stage has losses.
  EXPECT_EQ(ToTorchCsv(Schedule::Parse("0F1 0F0 0BW0 0BW1\n"
                                       "1F0 1F1 1BW0 1BW1\n")),
            "0F1,0F0,0B0,0B1\n1F0,1F1,1B0,1B1\n");
}

TEST(TorchPlacement, SaysWhoBuildsWhatAndWhatRunsIt) {
  EXPECT_EQ(DescribeTorchPlacement(Schedule(ZbV(2, 4))),
            "rank 0: stages 0, 3\n"
            "rank 1: stages 1, 2\n"
            "placement style: v\n"
            "PyTorch: schedule = _PipelineScheduleRuntime(stages, n_microbatches=4, loss_fn=...);\n"
            "    schedule._load_csv(FILE)\n"
            "torchtitan: pipeline_parallel_schedule_csv=FILE with "
            "pipeline_parallel_schedule=\"ZBVZeroBubble\"\n"
            "note: for stage 0 PyTorch does nothing in I and the whole backward in W\n");
  EXPECT_EQ(DescribeTorchPlacement(Schedule(OneFOneB(2, 3))),
            "rank 0: stage 0\n"
            "rank 1: stage 1\n"
            "placement style: loop\n"
            "PyTorch: schedule = _PipelineScheduleRuntime(stages, n_microbatches=3, loss_fn=...);\n"
            "    schedule._load_csv(FILE)\n"
            "torchtitan: pipeline_parallel_schedule_csv=FILE with "
            "pipeline_parallel_schedule=\"1F1B\"\n"
            "note: older releases of PyTorch refuse a rank with a single stage in this class\n");
}

TEST(TorchPlacement, SaysHowAFileWithSendsAndReceivesIsLoaded) {
  const std::string text =
      DescribeTorchPlacement(Schedule(OneFOneB(2, 3)), TorchForm::kComputeComms);
  EXPECT_THAT(text, HasSubstr("_load_csv(FILE, format=\"compute_comms\")"));
  EXPECT_THAT(text, HasSubstr("torchtitan: cannot"));
}

// 1 before 0 on both ranks: called 0 and 1 it is a file that PyTorch takes.
TEST(NumberedByLosses, CallsMicroBatchesInTheOrderOfTheLastStage) {
  const Schedule schedule = Schedule::Parse(
      "0F1 0F2 0BW1 0F0 0BW2 0BW0\n"
      "1F1 1BW1 1F2 1BW2 1F0 1BW0\n");
  EXPECT_NE(ErrorOf([&] { ToTorchCsv(schedule); }), "");
  const NumberedSchedule numbered = NumberedByLosses(schedule);
  EXPECT_THAT(numbered.order, ElementsAre(1, 2, 0));
  EXPECT_FALSE(numbered.is_as_it_was());
  EXPECT_EQ(ToTorchCsv(numbered.schedule),
            "0F0,0F1,0B0,0F2,0B1,0B2\n"
            "1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(NumberedByLosses, LeavesWhatIsInOrderAsItIs) {
  const Schedule schedule(OneFOneB(3, 4));
  const NumberedSchedule numbered = NumberedByLosses(schedule);
  EXPECT_TRUE(numbered.is_as_it_was());
  EXPECT_EQ(numbered.schedule.ToOrders(), schedule.ToOrders());
}

TEST(TorchPlacement, TellsLoopFromVFromNeither) {
  const auto describe = [](const Orders& orders) {
    return DescribeTorchPlacement(Schedule(orders));
  };
  EXPECT_THAT(describe(Interleaved(4, 8, 2, 4)), HasSubstr("style: loop\n"));
  EXPECT_THAT(describe(Interleaved(4, 8, 2, 4)), HasSubstr("\"Interleaved1F1B\"\n"));
  EXPECT_THAT(describe(Interleaved(4, 8, 3, 4)),
              HasSubstr("layers_per_stage so that 3 stages are made for each rank"));
  EXPECT_THAT(describe(DualPipeV(4, 8)), HasSubstr("style: v\n"));
  EXPECT_THAT(describe(DualPipeV(4, 8)), HasSubstr("register_custom_function"));
  EXPECT_THAT(describe(Interleaved(4, 8, 2, 4)), Not(HasSubstr("note:")));
  // Down, up and down again.
  EXPECT_THAT(describe(ParseOrders("0F0 3F0 4F0 4BW0 3BW0 0BW0\n"
                                   "1F0 2F0 5F0 5BW0 2BW0 1BW0\n")),
              AllOf(HasSubstr("style: v\n"), HasSubstr("torchtitan: cannot")));
  EXPECT_THAT(describe(ParseOrders("1F0 1BW0\n"
                                   "0F0 0BW0\n")),
              AllOf(HasSubstr("style: neither"), HasSubstr("torchtitan: cannot")));
  EXPECT_THAT(describe(ParseOrders("0F0 2F0 2BW0 0BW0\n"
                                   "1F0 1BW0\n")),
              HasSubstr("style: neither"));
}

// What the writer's own check would catch, one fault at a time.
TEST(TorchObjection, AcceptsWhatIsGood) {
  EXPECT_EQ(TorchObjection("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1,1W1\n", 2, 2), "");
  EXPECT_EQ(TorchObjection("0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1", 2, 2), "");
}

TEST(TorchObjection, CatchesEachFault) {
  EXPECT_EQ(TorchObjection("", 1, 1), "has no rows");
  EXPECT_EQ(TorchObjection("0F0,0B0\n\n", 1, 1), "rank 1: has no action");
  EXPECT_EQ(TorchObjection("0F0,,0B0\n", 1, 1), "rank 0: \"\" is not an action");
  EXPECT_EQ(TorchObjection("0F0,0BW0\n", 1, 1), "rank 0: \"0BW0\" is not an action");
  EXPECT_EQ(TorchObjection("0F0,(0F1;0B0)OVERLAP\n", 1, 2),
            "rank 0: \"(0F1;0B0)OVERLAP\" is not an action");
  EXPECT_EQ(TorchObjection("0B0,0F0\n", 1, 1), "rank 0: 0B0 before its F");
  EXPECT_EQ(TorchObjection("0I0,0F0,0W0\n", 1, 1), "rank 0: 0I0 before its F");
  EXPECT_EQ(TorchObjection("0F0,0W0,0I0\n", 1, 1), "rank 0: 0W0 before its I");
  EXPECT_EQ(TorchObjection("0F0,0B0\n0F1,0B1\n", 1, 2),
            "rank 1: 0F1 is of a stage that is on another rank too");
  EXPECT_EQ(TorchObjection("0F0,0B0,1F0,1B0\n", 1, 1),
            "rank 0: 1F0 names a stage that is not there");
  EXPECT_EQ(TorchObjection("0F0,0B0,0F1,0B1\n", 1, 1),
            "rank 0: 0F1 names a micro-batch that is not there");
  EXPECT_EQ(TorchObjection("0F0,0B0,0B0\n", 1, 1), "rank 0: 0B0 stands twice");
  EXPECT_EQ(TorchObjection("0F0\n", 1, 1), "stage 0: 1 F, 0 B, 0 I and 0 W for 1 micro-batches");
  EXPECT_EQ(TorchObjection("0F0,0I0\n", 1, 1),
            "stage 0: 1 F, 0 B, 1 I and 0 W for 1 micro-batches");
  EXPECT_EQ(TorchObjection("0F0,0B0,0I0,0W0\n", 1, 1),
            "stage 0: 1 F, 1 B, 1 I and 1 W for 1 micro-batches");
  EXPECT_EQ(TorchObjection("0F1,0F0,0B0,0B1\n", 1, 2),
            "rank 0: 0F1 is out of order: losses are kept in the order of execution");
  EXPECT_EQ(TorchObjection("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 2, 2),
            "rank 0: 0B0 is never ready");
  EXPECT_EQ(TorchObjection("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n", 2, 2),
            "rank 0: 0F1 is never ready");
}

}  // namespace
}  // namespace spiritlevel
