#include "sim/schedules/closed_forms.h"

#include <algorithm>

namespace spiritlevel {
namespace {

TimeNs Split(const StageCost& c) { return c.forward + c.input_grad + c.weight_grad; }
TimeNs Fused(const StageCost& c) { return c.forward + c.fused_backward; }

bool AllEqual(const StageCost& c) {
  return c.forward == c.input_grad && c.input_grad == c.weight_grad;
}
// Fused and overlapped passes that cost the sum of their parts.
bool NoGainFromJoining(const StageCost& c) {
  return c.fused_backward == c.input_grad + c.weight_grad &&
         c.overlapped == c.forward + c.fused_backward;
}

}  // namespace

ClosedForm GPipeForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches;
  return {.makespan = (m + p - 1) * Fused(c) + 2 * (p - 1) * transfer,
          .max_rank_span = (m + p - 1) * Fused(c) + 2 * (p - 1) * transfer,
          .peak_stage_activations = s.micro_batches};
}

// arXiv 2401.10241, table 2, with the transfers of a steady state in which every p-th micro-batch
// waits for a round trip.
ClosedForm OneFOneBForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches;
  ClosedForm form{.makespan = {},
                  .max_rank_span = {},
                  .peak_stage_activations = std::min(s.ranks, s.micro_batches)};
  if (transfer != 0 && m % p != 0) return form;
  const TimeNs transfers = p == 1 ? 0 : transfer * (2 * (p - 1) * m / p + 2 * (p - 2));
  form.makespan = form.max_rank_span = (m + p - 1) * Fused(c) + transfers;
  return form;
}

ClosedForm InterleavedForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches, v = s.stages_per_rank;
  ClosedForm form;
  const bool pytorch_group = s.group == 0 || s.group == DefaultGroup(s.ranks, s.micro_batches);
  if (m % p != 0 || !pytorch_group) return form;
  // arXiv 2104.04473, section 2.2.2: 1F1B's bubble, of stages v times as small.
  if (transfer == 0) form.makespan = form.max_rank_span = (m * v + p - 1) * Fused(c);
  form.peak_stage_activations =
      static_cast<int>(std::min(m * v, (v - 1) * p + 2 * (p - 1) + 1));
  return form;
}

ClosedForm InterleavedZbForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches, v = s.stages_per_rank;
  ClosedForm form;
  const bool pytorch_group = s.group == 0 || s.group == DefaultGroup(s.ranks, s.micro_batches);
  if (m % p != 0 || !pytorch_group) return form;
  if (transfer == 0 && AllEqual(c)) {
    form.makespan = form.max_rank_span =
        m * v * Split(c) + (p - 1) * (c.forward + c.input_grad - c.weight_grad);
  }
  form.peak_stage_activations = static_cast<int>(std::min(m * v, v * p));
  return form;
}

// arXiv 2401.10241, table 2. Checked on random shapes and times for these conditions.
ClosedForm ZbH1Form(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches;
  ClosedForm form{.makespan = {},
                  .max_rank_span = {},
                  .peak_stage_activations = std::min(s.ranks, s.micro_batches)};
  const bool holds = c.weight_grad <= c.forward &&
                     ((transfer == 0 && m >= p) ||
                      (2 * transfer <= c.weight_grad && m >= 2 * p - 1));
  if (!holds) return form;
  form.makespan = form.max_rank_span =
      m * Split(c) + (p - 1) * (c.forward + c.input_grad - c.weight_grad + 4 * transfer);
  return form;
}

ClosedForm ZbH2Form(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches;
  ClosedForm form{.makespan = {},
                  .max_rank_span = {},
                  .peak_stage_activations = std::min(2 * s.ranks - 1, s.micro_batches)};
  const bool holds = m >= 2 * p - 1 && c.weight_grad <= c.forward &&
                     2 * c.weight_grad <= c.forward + c.input_grad + 2 * transfer &&
                     2 * transfer <= c.forward;
  if (!holds) return form;
  form.max_rank_span =
      m * Split(c) + (p - 1) * (c.forward + c.input_grad - 2 * c.weight_grad + 2 * transfer);
  return form;
}

// Here and below `c` is one of a rank's two stages, half of its share.
ClosedForm ZbVForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs p = s.ranks, m = s.micro_batches;
  ClosedForm form;
  if (m >= 2 * p) form.peak_stage_activations = 2 * s.ranks;
  if (m < 2 * p || transfer != 0 || !AllEqual(c)) return form;
  form.max_rank_span = 2 * m * Split(c);
  form.makespan = 2 * m * Split(c) + (p - 1) * c.forward;
  return form;
}

// The times of the two below are observed on 3 <= p <= 20 and p <= m <= 3p + 5, not proved.
static ClosedForm ControllableMemoryForm(const Shape& s, const StageCost& c, TimeNs transfer,
                                  int in_flight, TimeNs idle_stages) {
  ClosedForm form{.makespan = {},
                  .max_rank_span = {},
                  .peak_stage_activations = 2 * std::min(s.micro_batches, in_flight)};
  if (transfer != 0 || !AllEqual(c) || s.ranks < 3 || s.ranks > 20) return form;
  if (s.micro_batches < s.ranks) return form;
  form.makespan = form.max_rank_span = 2 * s.micro_batches * Split(c) + idle_stages * c.forward;
  return form;
}

ClosedForm VHalfForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs idle = 3 * s.ranks - (s.ranks % 2 == 0 ? 7 : 4);
  return ControllableMemoryForm(s, c, transfer, s.ranks / 2 + 1, idle);
}

ClosedForm VMinForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  const TimeNs idle = 4 * s.ranks - (s.ranks % 3 == 0 ? 7 : 5);
  return ControllableMemoryForm(s, c, transfer, (s.ranks + 4) / 3, idle);
}

// The README of DualPipe, for 2 x `depths` stages that micro-batches pass.
static ClosedForm DualPipeBubble(int depths, TimeNs work, const StageCost& c, TimeNs transfer) {
  ClosedForm form;
  form.peak_stage_activations = 2 * depths + 1;
  if (transfer != 0 || !AllEqual(c) || !NoGainFromJoining(c)) return form;
  form.makespan = form.max_rank_span =
      work + (depths - 1) * (c.overlapped + c.fused_backward - 3 * c.weight_grad);
  return form;
}

ClosedForm DualPipeForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  return DualPipeBubble(s.ranks / 2, s.micro_batches * Split(c), c, transfer);
}

ClosedForm DualPipeVForm(const Shape& s, const StageCost& c, TimeNs transfer) {
  return DualPipeBubble(s.ranks, 2 * s.micro_batches * Split(c), c, transfer);
}

}  // namespace spiritlevel
