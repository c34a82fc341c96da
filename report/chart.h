// Charts of the first iteration, in letters, one row a rank.
#pragma once

#include <string>

#include "sim/program.h"
#include "sim/timeline.h"

namespace spiritlevel {

// Every op by name, for small schedules and for tests; one cell for each `unit` of time. 1F1B on 3
// ranks, 4 micro-batches, F = 1, BW = 2:
//
//   f0f1f2........B0B0f3B1B1..B2B2..B3B3
//   ..f0f1....B0B0f2B1B1f3B2B2..B3B3....
//   ....f0B0B0f1B1B1f2B2B2f3B3B3........
//
// f, b, w, B: F, B, W, BW, with the micro-batch; '.': idle; 'o': optimizer; '=': collective. Where
// a rank holds several stages, the stage stands first and cells stand apart, as in "7f0"; an F&B
// pair shows its two ops in turn, joined by '&': "0f7&7B3&0f7". An op is shown in the units whose
// middle it covers, so what is shorter than a unit may not be seen.
std::string TextChart(const Program& program, const Timeline& timeline, TimeNs unit);

// The whole iteration scaled to `width` columns, with a time axis and a legend. A cell shows what
// fills most of it: F, B, W, G (BW), X (F&B) of a rank's first stage, the same in lower case of its
// others, O the optimizer, = a collective, '.' idle. With `colour`, ANSI colours beside the
// letters; whether the terminal wants them is for the caller to know.
std::string TerminalChart(const Program& program, const Timeline& timeline, int width,
                          bool colour = false);

}  // namespace spiritlevel
