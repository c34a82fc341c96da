// Writes a Schedule as a CSV that torch.distributed.pipelining loads.
//
//   ToTorchCsv(Schedule::Parse("0F0 0F1 0BW0 0BW1\n"     // 0F0,0F1,0B0,0B1
//                              "1F0 1BW0 1F1 1BW1\n"));  // 1F0,1B0,1F1,1B1
//
// Compute actions only, one row for each rank in rank order, in PyTorch's current letters (F, I for
// B, W, B for BW, and (..;..)OVERLAP_F_B); lines end in LF; no header, no quotes. PyTorch adds the
// communication itself, in the form that its release wants. No cell is empty: the class to run it
// with is _PipelineScheduleRuntime, which looks only at the order of a row. (PipelineScheduleMulti
// runs column by column and would need the blanks of a time grid.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/schedule.h"

namespace spiritlevel {

// Throws InputError, with a way out, for what PyTorch cannot run or would silently get wrong:
//   - a stage on two ranks (DualPipe);
//   - forwards of the last stage that are not in the order of micro-batches: the losses are kept in
//     the order of execution and asked for by micro-batch.
// What is returned was read back and passed PyTorch's checks (TorchObjection).
std::string ToTorchCsv(const Schedule& schedule);

// A schedule whose micro-batches are called by the order in which its last stage runs them, as
// PyTorch needs them. What is `order[n]` in `schedule` as it was is `n` here.
struct NumberedSchedule {
  Schedule schedule;
  std::vector<int> order;

  bool is_as_it_was() const;
};

// For an order that somebody found, and whose user hands out the micro-batches. Throws like
// ToTorchCsv() for a stage on two ranks.
NumberedSchedule NumberedByLosses(const Schedule& schedule);

// For the user, a few lines: which rank must build which stages, the placement style ("loop" or
// "v") that does so, and what runs the file. Throws like ToTorchCsv for a stage on two ranks.
enum class TorchForm { kComputeOnly, kComputeComms };
std::string DescribeTorchPlacement(const Schedule& schedule,
                                   TorchForm form = TorchForm::kComputeOnly);

// What PyTorch would say to a compute-only CSV: its validation, and the progress check of the pass
// that adds the communication. Works on the text alone, not on the Schedule that it was written
// from.
//
//   TorchObjection("0F0,0B0\n", /*stages=*/1, /*micro_batches=*/1);  // ""
//   TorchObjection("0B0,0F0\n", 1, 1);                               // "rank 0: 0B0 before its F"
//
// Empty when the CSV is accepted. The rules of PyTorch's _validate_schedule:
//   - every rank has a row with an action in it;
//   - on its rank, B or I comes after F, and W after I, of the same stage and micro-batch;
//   - each stage is on one rank, and stages are 0 .. stages - 1;
//   - for each stage, as many F as micro-batches, as many I as W, and B + I as micro-batches.
// Then those it does not check and needs: micro-batches are 0 .. micro_batches - 1, no action
// stands twice, the last stage's F are in order, and the rows together never wait in a circle.
std::string TorchObjection(std::string_view csv, int stages, int micro_batches);

}  // namespace spiritlevel
