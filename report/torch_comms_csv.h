// Writes a Schedule as a CSV that torch.distributed.pipelining runs as it is, sends and receives
// included (its format "compute_comms").
//
//   ToTorchCommsCsv(Schedule::Parse("0F0 0BW0\n1F0 1BW0\n"));
//   // 0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD
//   // 1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD
//
// A send stands behind the op that makes it. All sends and receives of a pair of ranks are posted
// in one order on both of them, that of a run in which messages take time (Receives::kDeferred);
// within it a receive stands as late as it can, before the op that needs it or the next send to the
// same rank. So none blocks a send that is sooner due, and no two ranks wait for each other.
#pragma once

#include <string>
#include <string_view>

#include "sim/schedule.h"

namespace spiritlevel {

struct TorchCommsOptions {
  // REDUCE_GRAD behind the last backward of each stage. PyTorch of late 2025 and on scales and
  // reduces gradients only there; older releases do not know the word.
  bool reduce_grad = true;
  // UNSHARD and RESHARD, which stages sharded by FSDP need and others ignore.
  bool shards = false;
};

// Throws what ToTorchCsv() throws. Before anything is returned, the schedule's messages were found
// free of deadlock on in-order channels (FindDeadlock), and the text was read back and passed
// TorchCommsObjection().
std::string ToTorchCommsCsv(const Schedule& schedule, const TorchCommsOptions& options = {});

// What goes wrong where the rows are run on channels on which everything between two ranks, both
// ways, happens in the order in which it is posted; empty if nothing does. Works on the text alone.
//
//   TorchCommsObjection("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0\n");  // "rank 0: 0B0 before its
//                                                                 // 0RECV_B0"
//
// Each send must meet the receive of the same message; each op needs its own inputs on its rank,
// made there or received before it in its row; and all rows must come to their ends.
std::string TorchCommsObjection(std::string_view csv);

}  // namespace spiritlevel
