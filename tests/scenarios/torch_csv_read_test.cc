#include "scenarios/torch_csv.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>

#include "base/check.h"
#include "base/file.h"
#include "sim/costs.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/schedule.h"
#include "sim/schedules/generators.h"

namespace spiritlevel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Read(std::string_view text) { return ToString(ParseTorchCsv(text, "x.csv").orders); }

std::vector<std::string> Notes(std::string_view text) { return ParseTorchCsv(text, "x.csv").notes; }

CsvDialect DialectOf(std::string_view text) { return ParseTorchCsv(text, "x.csv").dialect; }

// The whole message, or what was read instead of it.
std::string ErrorOf(std::string_view text) {
  try {
    return "no error, but " + Read(text);
  } catch (const InputError& error) {
    return error.what();
  }
}

// The first line of the message.
std::string ProblemOf(std::string_view text) {
  const std::string error = ErrorOf(text);
  return error.substr(0, error.find('\n'));
}

struct Played {
  TimeNs makespan = 0;
  std::vector<Bytes> peaks;  // by rank
  std::vector<TimeNs> busy;
};

Played Play(const Orders& orders, const StageCost& cost) {
  const Schedule schedule(orders);
  const Program program =
      Lower(schedule, Costs::Uniform(schedule.num_stages(), schedule.num_micro_batches(), cost),
            {.tail = Tail::kNoTail});
  const Timeline timeline = SimulateInOrder(program);
  Played played;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    played.peaks.push_back(0);
    played.busy.push_back(0);
    for (NodeId n = program.rank_begin(rank); n < program.rank_end(rank); ++n) {
      const NodeTimes& times = timeline.nodes[static_cast<size_t>(n)];
      played.makespan = std::max(played.makespan, times.end);
      played.peaks.back() = std::max(played.peaks.back(), times.live);
      played.busy.back() += times.end - times.start;
    }
  }
  return played;
}

constexpr StageCost kUnit{.forward = 1,
                          .input_grad = 1,
                          .weight_grad = 1,
                          .fused_backward = 2,
                          .overlapped = 3,
                          .activation = 1};

TEST(TorchCsvRead, LettersOfTodayMeanFullBackwardForB) {
  EXPECT_EQ(Read("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n"),
            "0F0 0F1 0B0 0W0 0BW1\n1F0 1BW0 1F1 1BW1\n");
  EXPECT_EQ(DialectOf("0F0,0I0,0W0\n"), CsvDialect::kCurrent);
  EXPECT_THAT(Notes("0F0,0I0,0W0\n"), IsEmpty());
}

TEST(TorchCsvRead, LettersOf2024MeanInputGradientForB) {
  EXPECT_EQ(Read("0F0,0F1,0B0,0W0,0BW1\n"), "0F0 0F1 0B0 0W0 0BW1\n");
  EXPECT_EQ(DialectOf("0F0,0BW0\n"), CsvDialect::kOf2024);
  EXPECT_THAT(Notes("0F0,0BW0\n"), ElementsAre(HasSubstr("dialect of 2024")));
}

TEST(TorchCsvRead, BAndWOfOneMicroBatchAreTheDialectOf2024EvenAcrossRows) {
  EXPECT_EQ(DialectOf("0F0,0B0,0W0\n"), CsvDialect::kOf2024);
  EXPECT_EQ(DialectOf("0F0,0B0\n0W0\n"), CsvDialect::kOf2024);
  // W of another stage or micro-batch does not tell.
  EXPECT_EQ(DialectOf("0F0,0B0,0W1\n"), CsvDialect::kCurrent);
  EXPECT_EQ(DialectOf("0F0,0B0,1W0\n"), CsvDialect::kCurrent);
}

TEST(TorchCsvRead, OnlyBIsTheFullBackward) {
  EXPECT_EQ(Read("0F0,0B0\n"), "0F0 0BW0\n");
  EXPECT_EQ(DialectOf("0F0,0B0\n"), CsvDialect::kCurrent);
}

// The first files of 2024 had no BW.
TEST(TorchCsvRead, ABWithoutWIsAFullBackwardWhereNoBwIsKnown) {
  EXPECT_EQ(Read("0F0,0F1,0B0,0W0,0B1\n"), "0F0 0F1 0B0 0W0 0BW1\n");
  EXPECT_THAT(Notes("0F0,0F1,0B0,0W0,0B1\n"),
              ElementsAre(HasSubstr("dialect of 2024"), HasSubstr("without a W")));
}

TEST(TorchCsvRead, ABWithoutWStaysAMistakeWhereBwIsKnown) {
  EXPECT_EQ(Read("0F0,0F1,0BW0,0B1\n"), "0F0 0F1 0BW0 0B1\n");
}

// PyTorch of today would refuse these; so must the checker, which sees BW and W.
TEST(TorchCsvRead, AMarkOfTodayOverrulesBAndWOfOneMicroBatch) {
  EXPECT_EQ(Read("0F0,0F1,0B0,0W0,0I1,0W1\n"), "0F0 0F1 0BW0 0W0 0B1 0W1\n");
  EXPECT_EQ(Read("0F0,0B0,0W0,0REDUCE_GRAD\n"), "0F0 0BW0 0W0\n");
}

TEST(TorchCsvRead, TwoDialectsInOneFileAreRefusedWithBothPlaces) {
  EXPECT_EQ(ProblemOf("0F0,0BW0\n1F0,1F1,1I0\n"),
            "x.csv: mixes two dialects: BW in row 1, cell 2; I in row 2, cell 3");
  EXPECT_EQ(ProblemOf("0F0,0BW0,(0F1;1B0)OVERLAP_F_B\n"),
            "x.csv: mixes two dialects: BW in row 1, cell 2; OVERLAP_F_B in row 1, cell 3");
  EXPECT_EQ(ProblemOf("0REDUCE_GRAD,0BW0\n"),
            "x.csv: mixes two dialects: BW in row 1, cell 2; REDUCE_GRAD in row 1, cell 1");
}

TEST(TorchCsvRead, APairIsTwoOpsInTheOrderWritten) {
  EXPECT_EQ(Read("(0F7;7B3)OVERLAP_F_B,(7B4;0F8)OVERLAP_F_B\n"), "(0F7;7BW3) (7BW4;0F8)\n");
  EXPECT_EQ(Read("( 0F7 ; 7B3 )OVERLAP_F_B\n"), "(0F7;7BW3)\n");
}

TEST(TorchCsvRead, APairOfAnythingElseIsRefused) {
  const std::string place = "x.csv:2: cell 2: ";
  const auto problem = [](std::string_view cell) {
    return ProblemOf(fmt::format("0F0\n1F0,{}\n", cell));
  };
  EXPECT_THAT(problem("(0F7)OVERLAP_F_B"), HasSubstr(place + "\"(0F7)OVERLAP_F_B\": a pair needs"));
  EXPECT_THAT(problem("(0F7;7B3;7B4)OVERLAP_F_B"), HasSubstr("after its two actions"));
  EXPECT_THAT(problem("(0F7;7F3)OVERLAP_F_B"), HasSubstr("not a forward and a backward"));
  EXPECT_THAT(problem("(0F7;7I3)OVERLAP_F_B"), HasSubstr("only F and B"));
  EXPECT_THAT(problem("(0F7;7BW3)OVERLAP_F_B"), HasSubstr("only F and B"));
  EXPECT_THAT(problem("(0F7;7SEND_F3)OVERLAP_F_B"), HasSubstr("only F and B"));
  EXPECT_THAT(problem("(0F7;7B3)"), HasSubstr("does not end in )OVERLAP_F_B"));
  EXPECT_THAT(problem("(0F7;7B3) OVERLAP_F_B"), HasSubstr("does not end in )OVERLAP_F_B"));
  EXPECT_THAT(problem("(0F7;7B3)OVERLAP_F_B9"), HasSubstr("\"9\" follows the action"));
  EXPECT_THAT(problem("("), HasSubstr("the stage number is missing"));
  EXPECT_THAT(problem("((0F7;7B3)OVERLAP_F_B;0F1)OVERLAP_F_B"),
              HasSubstr("the stage number is missing"));
}

TEST(TorchCsvRead, CommunicationIsLeftOutAndNotedOnce) {
  const CsvSchedule csv = ParseTorchCsv(
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0\n",
      "x.csv");
  EXPECT_EQ(ToString(csv.orders), "0F0 0BW0\n1F0 1BW0\n");
  EXPECT_TRUE(csv.had_communication);
  EXPECT_THAT(csv.notes,
              ElementsAre("communication cells left out: the messages are derived from the order"));
  EXPECT_FALSE(ParseTorchCsv("0F0,0B0\n", "x.csv").had_communication);
}

TEST(TorchCsvRead, EmptyCellsAreBubblesAndLeftOut) {
  EXPECT_EQ(Read("0F0,,0B0\n\"\", ,1F0,\"\",1B0,\n"), "0F0 0BW0\n1F0 1BW0\n");
  EXPECT_TRUE(ParseTorchCsv("0F0,,0B0", "x.csv").had_blanks);
  EXPECT_FALSE(ParseTorchCsv("0F0,0B0", "x.csv").had_blanks);
}

TEST(TorchCsvRead, EveryFormOfLineEndReadsTheSame) {
  const std::string expected = "0F0 0BW0\n1F0 1BW0\n";
  EXPECT_EQ(Read("0F0,0B0\n1F0,1B0"), expected);
  EXPECT_EQ(Read("0F0,0B0\n1F0,1B0\n"), expected);
  EXPECT_EQ(Read("0F0,0B0\r\n1F0,1B0\r\n"), expected);
  EXPECT_EQ(Read("0F0,\"0B0\"\r\n\"1F0\",1B0"), expected);
}

TEST(TorchCsvRead, AByteOrderMarkIsLeftOutAndNoted) {
  EXPECT_EQ(Read("\xEF\xBB\xBF"
                 "0F0,0B0\n"),
            "0F0 0BW0\n");
  EXPECT_THAT(Notes("\xEF\xBB\xBF"
                    "0F0,0B0\n"),
              ElementsAre(HasSubstr("byte order mark")));
}

TEST(TorchCsvRead, BlankLinesAreRefusedExceptAtTheEnd) {
  EXPECT_EQ(ErrorOf("0F0,0B0\n\n1F0,1B0\n"),
            "x.csv:2: is blank\n"
            "    PyTorch counts a blank line as a rank without work; take it out");
  EXPECT_EQ(ProblemOf("\n0F0,0B0\n"), "x.csv:1: is blank");
  EXPECT_EQ(Read("0F0,0B0\n\n \r\n"), "0F0 0BW0\n");
  EXPECT_THAT(Notes("0F0,0B0\n\n"), ElementsAre(HasSubstr("blank lines at the end")));
  EXPECT_EQ(ProblemOf("0F0,0B0\n,,\n"), "x.csv:2: all cells are empty");
  EXPECT_EQ(ProblemOf("0F0,0B0\n\"\"\n"), "x.csv:2: all cells are empty");
}

// PyTorch reads the start of a cell and ignores the rest.
TEST(TorchCsvRead, TextAfterAnActionIsRefusedWithItsPlace) {
  EXPECT_EQ(ErrorOf("0F0\n1F0,1F1,1F2,1F3,0F0xyz\n"),
            "x.csv:2: cell 5: \"0F0xyz\": \"xyz\" follows the action\n"
            "    PyTorch would ignore it without a word; take it out, or put a comma between two "
            "actions");
  EXPECT_EQ(ProblemOf("0F0 0F1\n"), "x.csv:1: cell 1: \"0F0 0F1\": \" 0F1\" follows the action");
  EXPECT_EQ(ProblemOf("0UNSHARD3\n"), "x.csv:1: cell 1: \"0UNSHARD3\": \"3\" follows the action");
  EXPECT_EQ(ProblemOf("0F0;0F1\n"), "x.csv:1: cell 1: \"0F0;0F1\": \";0F1\" follows the action");
}

TEST(TorchCsvRead, WhatIsNotAnActionIsRefusedWithItsPlace) {
  EXPECT_EQ(ErrorOf("0X0\n"),
            "x.csv:1: cell 1: \"0X0\": \"X0\" is not an action that PyTorch knows\n"
            "    an action is written 2F0: stage, one of F, I, W, B, micro-batch; an F&B pair "
            "(0F7;7B3)OVERLAP_F_B");
  EXPECT_EQ(ProblemOf("0f0\n"),
            "x.csv:1: cell 1: \"0f0\": \"f0\" is not an action that PyTorch "
            "knows");
  EXPECT_EQ(ProblemOf("0F0,F0\n"), "x.csv:1: cell 2: \"F0\": the stage number is missing");
  EXPECT_EQ(ProblemOf("0F0,-1F0\n"), "x.csv:1: cell 2: \"-1F0\": the stage number is missing");
  EXPECT_EQ(ProblemOf("0F\n"), "x.csv:1: cell 1: \"0F\": the micro-batch number is missing");
  EXPECT_EQ(ProblemOf("0SEND_F\n"),
            "x.csv:1: cell 1: \"0SEND_F\": the micro-batch number is missing");
  EXPECT_EQ(ProblemOf("7\n"), "x.csv:1: cell 1: \"7\": the letter after the stage is missing");
  EXPECT_EQ(ProblemOf("rank,step 0\n"), "x.csv:1: cell 1: \"rank\": the stage number is missing");
  EXPECT_EQ(ProblemOf("\"0F0,0B0\"\n"),
            "x.csv:1: cell 1: \"\"0F0\": the quotes do not close within the cell");
}

TEST(TorchCsvRead, NumbersTooLargeAreRefused) {
  EXPECT_EQ(Read("65534F0\n"), "65534F0\n");
  EXPECT_EQ(ErrorOf("65535F0\n"),
            "x.csv:1: cell 1: \"65535F0\": the stage number is too large\n"
            "    the largest that can be read is 65534");
  EXPECT_EQ(ProblemOf("0F99999999999999999999\n"),
            "x.csv:1: cell 1: \"0F99999999999999999999\": the micro-batch number is too large");
  std::string rows;
  for (int i = 0; i < 65535; ++i) rows += "0F0\n";
  EXPECT_EQ(ProblemOf(rows), "x.csv: has more than 65534 rows");
}

TEST(TorchCsvRead, WhatIsNoTextOrEmptyIsRefused) {
  EXPECT_EQ(ProblemOf(""), "x.csv: is empty");
  EXPECT_EQ(ProblemOf(" \r\n\t\n"), "x.csv: is empty");
  EXPECT_EQ(ProblemOf("\xEF\xBB\xBF"), "x.csv: is empty");
  EXPECT_EQ(ProblemOf(std::string_view("\x7f"
                                       "ELF\0\1",
                                       6)),
            "x.csv:1: the byte 0x7f is in no action");
  EXPECT_EQ(ProblemOf(std::string_view("0F0\n0\0F", 7)), "x.csv:2: the byte 0x00 is in no action");
  EXPECT_THAT(ProblemOf(std::string((size_t{32} << 20) + 1, ',')),
              HasSubstr("more than 33554432 is not a schedule"));
}

TEST(TorchCsvRead, LoadingSaysWhichFileCannotBeRead) {
  const std::filesystem::path missing = std::filesystem::path(testing::TempDir()) / "missing.csv";
  const auto error_of = [](const std::filesystem::path& path) -> std::string {
    try {
      LoadTorchCsv(path);
      return "no error";
    } catch (const InputError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of(missing), HasSubstr("missing.csv: cannot open"));
  EXPECT_THAT(error_of(testing::TempDir()), HasSubstr("is a directory"));
  const std::filesystem::path bad = std::filesystem::path(testing::TempDir()) / "torch_bad.csv";
  WriteFile(bad, "0F0,nonsense\n");
  EXPECT_THAT(error_of(bad), HasSubstr("torch_bad.csv:1: cell 2: "));
  std::filesystem::remove(bad);
}

// Hostile input: some bytes of a good file are changed, in ways that keep it looking like one.
class Mutations {
 public:
  explicit Mutations(uint32_t seed) : random_(seed) {}

  std::string Mutate(std::string text) {
    for (int n = Below(3) + 1; n > 0 && !text.empty(); --n) {
      const size_t at = static_cast<size_t>(Below(static_cast<int>(text.size())));
      switch (Below(5)) {
        case 0:
          text[at] = static_cast<char>(Below(256));
          break;
        case 1:
          text[at] = Likely();
          break;
        case 2:
          text.insert(at, 1, Likely());
          break;
        case 3:
          text.erase(at, static_cast<size_t>(Below(6)));
          break;
        case 4:
          text.insert(at,
                      text.substr(static_cast<size_t>(Below(static_cast<int>(text.size()))), 12));
          break;
      }
    }
    return text;
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  char Likely() {
    constexpr std::string_view kLikely = "0123456789FIWBSENDRCV_OLAP();,\n\r\t \"";
    return kLikely[static_cast<size_t>(Below(static_cast<int>(kLikely.size())))];
  }

  std::mt19937 random_;
};

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); });
}

TEST(TorchCsvRead, MutatedFilesAreReadOrRefusedAndNothingElse) {
  const std::vector<std::string> good = {
      "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n",
      "0F0,0SEND_F0,,0RECV_B0,0BW0\r\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\r\n",
      "0UNSHARD,0F0,(0F1;3B0)OVERLAP_F_B,0REDUCE_GRAD,0RESHARD\n\"\",1F0,( 2F1 ; 1B0 "
      ")OVERLAP_F_B\n",
      "\xEF\xBB\xBF"
      "0F0,0B0,0W0,0F65534\n"};
  int read = 0;
  int refused = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    const std::string text = Mutations(seed).Mutate(good[seed % good.size()]);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    try {
      const CsvSchedule csv = ParseTorchCsv(text, "x.csv");
      ++read;
      try {
        Schedule{csv.orders};
      } catch (const InputError&) {
        // Most can no longer run, which is not the reader's to judge.
      }
      for (const std::vector<Op>& ops : csv.orders) {
        for (size_t i = 0; i < ops.size(); ++i) {
          ASSERT_LT(ops[i].stage, 65535);
          ASSERT_GE(ops[i].micro_batch, 0);
          if (!ops[i].overlaps_next) continue;
          ASSERT_LT(i + 1, ops.size());
          ASSERT_TRUE((ops[i].pass == Pass::kF) != (ops[i + 1].pass == Pass::kF));
          ASSERT_FALSE(ops[i + 1].overlaps_next);
        }
      }
    } catch (const InputError& error) {
      ++refused;
      ASSERT_THAT(error.what(), ::testing::StartsWith("x.csv:"));
      ASSERT_TRUE(IsPrintable(error.what())) << error.what();
      ASSERT_FALSE(error.way_out().empty());
    }
  }
  // Both happen often, or the test tests nothing.
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

// Other people's files.
class TorchCsvPublicData : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("SPIRITLEVEL_PUBLIC_DATA");
    if (root == nullptr || *root == '\0') GTEST_SKIP() << "SPIRITLEVEL_PUBLIC_DATA is not set";
    folder_ = std::filesystem::path(root) / "pytorch_csv";
  }

  CsvSchedule Load(const std::string& name) const { return LoadTorchCsv(folder_ / name); }

  std::filesystem::path folder_;
};

// An adjacent B and W of one stage and micro-batch, as one BW: what PyTorch did to a schedule
// before it wrote it with communication.
Orders WithNeighboursMerged(Orders orders) {
  for (std::vector<Op>& ops : orders) {
    std::vector<Op> merged;
    for (const Op& op : ops) {
      Op* last = merged.empty() ? nullptr : &merged.back();
      if (op.pass == Pass::kW && last != nullptr && last->pass == Pass::kB &&
          last->stage == op.stage && last->micro_batch == op.micro_batch) {
        last->pass = Pass::kBW;
      } else {
        merged.push_back(op);
      }
    }
    ops = std::move(merged);
  }
  return orders;
}

TEST_F(TorchCsvPublicData, BothGenerationsOfZb1pSayTheSame) {
  const CsvSchedule compute_of_2024 = Load("LEGACY_2024_zb1p_2rank_2stagep_compute.csv");
  const CsvSchedule comms_of_2024 = Load("LEGACY_2024_zb1p_2rank_2stagep_comms.csv");
  const CsvSchedule compute = Load("zb1p_2rank_2stagep_compute.csv");
  const CsvSchedule comms = Load("zb1p_2rank_2stagep_comms.csv");

  EXPECT_EQ(compute_of_2024.dialect, CsvDialect::kOf2024);
  EXPECT_EQ(comms_of_2024.dialect, CsvDialect::kOf2024);
  EXPECT_EQ(compute.dialect, CsvDialect::kCurrent);
  EXPECT_EQ(comms.dialect, CsvDialect::kCurrent);
  EXPECT_TRUE(compute.had_blanks && !compute.had_communication);
  EXPECT_TRUE(!comms.had_blanks && comms.had_communication);

  EXPECT_EQ(compute_of_2024.orders, compute.orders);
  EXPECT_EQ(comms_of_2024.orders, comms.orders);
  EXPECT_NE(comms.orders, compute.orders);
  EXPECT_EQ(comms.orders, WithNeighboursMerged(compute.orders));
  for (const CsvSchedule& csv : {compute_of_2024, comms_of_2024, compute, comms}) {
    const Played played = Play(csv.orders, kUnit);
    EXPECT_EQ(played.makespan, 49);
    EXPECT_THAT(played.busy, Each(48));
  }
}

TEST_F(TorchCsvPublicData, Zb1pIsOurInterleavedZb) {
  EXPECT_EQ(Load("zb1p_2rank_2stagep_compute.csv").orders, InterleavedZb(2, 8, 2, 2));
}

// With its B taken for a full backward the old file has every weight gradient twice, once as part
// of B. A Schedule refuses that; counted all the same it would take 66 units, a third more.
TEST_F(TorchCsvPublicData, AFileOf2024InTheLettersOfTodayWouldBeWrong) {
  const Orders right = Load("LEGACY_2024_zb1p_2rank_2stagep_compute.csv").orders;
  Orders wrong = right;
  for (std::vector<Op>& ops : wrong) {
    for (Op& op : ops) op.pass = op.pass == Pass::kB ? Pass::kBW : op.pass;
  }
  EXPECT_THROW(Schedule{wrong}, InputError);

  StageCost full_backward_for_b = kUnit;
  full_backward_for_b.input_grad = 2;
  const Played played = Play(right, full_backward_for_b);
  EXPECT_EQ(played.makespan, 66);
  EXPECT_THAT(played.busy, Each(64));
}

// F&B of 3, 2.5 and 2 units, in half units.
TEST_F(TorchCsvPublicData, DualPipeVTakes66Or59Or52UnitsByItsOverlap) {
  const CsvSchedule csv = Load("dualpipev_4rank_10mb.csv");
  EXPECT_EQ(csv.dialect, CsvDialect::kCurrent);
  StageCost cost{.forward = 2,
                 .input_grad = 2,
                 .weight_grad = 2,
                 .fused_backward = 4,
                 .overlapped = 6,
                 .activation = 1};
  EXPECT_EQ(Play(csv.orders, cost).makespan, 2 * 66);
  EXPECT_THAT(Play(csv.orders, cost).peaks, ElementsAre(9, 9, 9, 9));
  cost.overlapped = 5;
  EXPECT_EQ(Play(csv.orders, cost).makespan, 2 * 59);
  cost.overlapped = 4;
  EXPECT_EQ(Play(csv.orders, cost).makespan, 2 * 52);
  EXPECT_THAT(Play(csv.orders, cost).busy, ElementsAre(2 * 51, 2 * 50, 2 * 49, 2 * 49));
}

TEST_F(TorchCsvPublicData, DualPipeVIsOurs) {
  EXPECT_EQ(Load("dualpipev_4rank_10mb.csv").orders, DualPipeV(4, 10));
}

TEST_F(TorchCsvPublicData, TorchtitansCustomScheduleHoldsAllForwardsFirst) {
  const Played played = Play(Load("torchtitan_custom_schedule_pp2_mb8.csv").orders, kUnit);
  EXPECT_EQ(played.makespan, 50);
  EXPECT_THAT(played.peaks, ElementsAre(16, 16));
}

}  // namespace
}  // namespace spiritlevel
