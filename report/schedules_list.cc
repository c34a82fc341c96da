#include "report/schedules_list.h"

#include <fmt/format.h>

#include "report/text.h"

namespace spiritlevel {
namespace {

constexpr size_t kIndent = 16;

void AddLine(std::string_view what, std::string_view text, std::string& out) {
  out += PadRight(fmt::format("    {}", what), kIndent) + Wrap(text, kIndent) + '\n';
}

std::string StagesPerRank(const ScheduleInfo& info) {
  const Shape two{.stages_per_rank = 2}, three{.stages_per_rank = 3};
  const int fixed = info.stages_per_rank(two);
  if (fixed != info.stages_per_rank(three))
    return "v stages a rank, the scenario's stages_per_rank";
  if (info.placement == "bidirectional") return "each stage on two ranks";
  return fixed == 1 ? "1 stage a rank" : fmt::format("{} stages a rank", fixed);
}

}  // namespace

std::string ListSchedules() {
  std::string out =
      Wrap(
          "p ranks, m micro-batches, v stages a rank. F, B, W: forward, input gradient and weight "
          "gradient of a rank's share of the model; BW: both gradients as one op; F&B: a forward "
          "and a backward overlapped; c: latency of one hop.",
          0) +
      "\n" +
      Wrap(
          "bubble: idle time beyond a rank's own work; memory: most activations on the fullest "
          "rank, each of a rank's share for one micro-batch.",
          0) +
      '\n';
  for (const ScheduleInfo& info : AllSchedules()) {
    out += fmt::format("\n{}\n", info.name);
    AddLine("placement", fmt::format("{}, {}", info.placement, StagesPerRank(info)), out);
    AddLine("constraint", info.constraint, out);
    AddLine("bubble", info.bubble, out);
    AddLine("memory", info.memory, out);
    AddLine("from", info.source, out);
  }
  return out;
}

}  // namespace spiritlevel
