// Reads the schedules of torch.distributed.pipelining: a CSV with one row for each rank and one
// action in each cell, "2F0": stage, letter, micro-batch.
//
//   const CsvSchedule csv = ParseTorchCsv("0F0,0F1,0I0,0W0,0B1\n", "one_rank.csv");
//   ToString(csv.orders);  // "0F0 0F1 0B0 0W0 0BW1\n"
//   csv.dialect;           // CsvDialect::kCurrent
//
// PyTorch's letters changed their meaning, so a file is read in the dialect that it is written in:
//
//               full backward   input gradient   weight gradient
//   current     B               I                W
//   of 2024     BW              B                W
//   here        BW              B                W
//
// A cell with I, OVERLAP_F_B or REDUCE_GRAD is current; a cell with BW is of 2024, and so is a file
// without any of these in which some stage has both B and W of one micro-batch. In the first files
// of 2024 there is no BW: there, B is the input gradient where a W of the same stage and
// micro-batch is found, and the full backward where none is. Else B is the full backward.
//
// Left out of the orders: empty cells, since PyTorch's runtime class looks only at the order of a
// row; sends, receives and the actions of FSDP, which a lowering makes anew.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/op.h"

namespace spiritlevel {

enum class CsvDialect { kCurrent, kOf2024 };

std::string_view Name(CsvDialect dialect);  // "current", "of 2024"

struct CsvSchedule {
  Orders orders;  // as written: whether they can run is for the schedule checker to say
  CsvDialect dialect = CsvDialect::kCurrent;
  bool had_communication = false;  // also UNSHARD, RESHARD, REDUCE_GRAD
  bool had_blanks = false;
  std::vector<std::string> notes;  // what the user should know about how the file was read
};

// Throws InputError, with "FILE:LINE: cell N" where there is such a place, for everything that is
// not in the grammar. Stricter than PyTorch, which ignores what follows the start of a cell.
CsvSchedule ParseTorchCsv(std::string_view text, std::string_view name_for_errors);
CsvSchedule LoadTorchCsv(const std::filesystem::path& path);

}  // namespace spiritlevel
