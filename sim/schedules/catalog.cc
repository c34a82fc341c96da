#include "sim/schedules/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/words.h"
#include "sim/schedules/closed_forms.h"
#include "sim/schedules/generators.h"
#include "sim/search/zb_heuristic.h"
#include "sim/search/zb_v_heuristic.h"

namespace spiritlevel {
namespace {

using MaybeRefusal = std::optional<InputError>;

int One(const Shape&) { return 1; }
int Two(const Shape&) { return 2; }
int AsGiven(const Shape& s) { return s.stages_per_rank; }

int GroupOf(const Shape& s) {
  return s.group > 0 ? s.group : DefaultGroup(s.ranks, s.micro_batches);
}

MaybeRefusal AnyShape(const Shape&) { return {}; }

std::string Count(int n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : what.ends_with('h') ? "es" : "s");
}

bool HasWholeRounds(int ranks, int micro_batches) {
  return micro_batches % std::max(1, micro_batches / ranks) == 0;
}

MaybeRefusal NeedsWholeRounds(const Shape& s) {
  if (s.group > 0 || HasWholeRounds(s.ranks, s.micro_batches)) return {};
  int less = s.micro_batches;
  int more = s.micro_batches;
  while (!HasWholeRounds(s.ranks, less)) --less;
  while (!HasWholeRounds(s.ranks, more)) ++more;
  return InputError(
      fmt::format("{} do not divide into {} equal rounds over {}",
                  Count(s.micro_batches, "micro-batch"), s.micro_batches / s.ranks,
                  Count(s.ranks, "rank")),
      fmt::format("use {} or {} micro-batches, or one group of all of them (--group {})", less,
                  more, s.micro_batches));
}

// Beyond this, moving ops slot by slot takes time and memory in the square of the ranks and more.
constexpr int kMostSlottedRanks = 512;

MaybeRefusal NeedsFewRanks(const Shape& s) {
  if (s.ranks <= kMostSlottedRanks) return {};
  return InputError(fmt::format("v-half and v-min are built slot by slot, for at most {} ranks; {}",
                                kMostSlottedRanks, s.ranks),
                    fmt::format("use {} ranks, or zb-v", kMostSlottedRanks));
}

MaybeRefusal NeedsTwicePerStage(const Shape& s) {
  if (s.micro_batches >= 2 * s.ranks) return {};
  return InputError(fmt::format("dualpipe-v needs micro-batches >= 2 x ranks; {} < {}",
                                s.micro_batches, 2 * s.ranks),
                    fmt::format("use {} micro-batches, or zb-v", 2 * s.ranks));
}

// "20 micro-batches", "8 ranks" or "8 ranks and 20 micro-batches": what of `to` is another than of
// `from`.
std::string Change(const Shape& from, const Shape& to) {
  const std::string ranks = fmt::format("{} ranks", to.ranks);
  const std::string micro_batches = fmt::format("{} micro-batches", to.micro_batches);
  if (from.ranks == to.ranks) return micro_batches;
  return from.micro_batches == to.micro_batches ? ranks : ranks + " and " + micro_batches;
}

// With `ranks` ranks, the least micro-batches from those of `s` up that dualpipe takes.
Shape DualPipeShape(const Shape& s, int ranks) {
  Shape shape = s;
  shape.ranks = ranks;
  shape.micro_batches = std::max(2 * ranks, s.micro_batches + s.micro_batches % 2);
  return shape;
}

MaybeRefusal NeedsEvenHalves(const Shape& s) {
  if (s.ranks % 2 == 0 && s.micro_batches % 2 == 0 && s.micro_batches >= 2 * s.ranks) return {};
  std::string fix;
  if (s.ranks % 2 == 0) {
    fix = Change(s, DualPipeShape(s, s.ranks));
  } else {
    const std::string more = Change(s, DualPipeShape(s, s.ranks + 1));
    const std::string less = s.ranks == 1 ? "" : Change(s, DualPipeShape(s, s.ranks - 1));
    const bool ranks_alone = more.find("micro") == more.npos && less.find("micro") == less.npos;
    fix = less.empty()  ? more
          : ranks_alone ? fmt::format("{} or {}", s.ranks - 1, more)
                        : fmt::format("{}, or {}", less, more);
  }
  const char* other = s.micro_batches >= 2 * s.ranks ? "dualpipe-v" : "zb-v";
  return InputError(
      fmt::format("dualpipe needs an even number of ranks, and an even number of micro-batches >= "
                  "2 x ranks; here {} and {}",
                  Count(s.ranks, "rank"), Count(s.micro_batches, "micro-batch")),
      fmt::format("use {}, or {}", fix, other));
}

std::string NoNote(const Shape&) { return ""; }

std::string Note1F1B(const Shape& s) {
  if (s.micro_batches >= s.ranks) return "";
  return fmt::format(
      "legal, but {} cannot fill {} ranks; PyTorch's 1F1B refuses "
      "fewer micro-batches than stages",
      Count(s.micro_batches, "micro-batch"), s.ranks);
}

std::string NoteGPipe(const Shape& s) {
  if (s.micro_batches >= s.ranks) return "";
  return fmt::format("{} cannot fill {} ranks", Count(s.micro_batches, "micro-batch"), s.ranks);
}

// Megatron's rule: p <= group <= m, and the last group is whole or at least p.
std::string NoteMegatronGroup(const Shape& s) {
  if (s.stages_per_rank < 2) return "";
  const int group = std::max(GroupOf(s), s.group > 0 ? 0 : s.ranks);
  if (group < s.ranks) {
    return fmt::format("Megatron refuses: group {} < {} ranks", group, s.ranks);
  }
  if (group > s.micro_batches) return fmt::format("Megatron refuses: group {} > m", group);
  const int left = s.micro_batches % group;
  if (left == 0 || left >= s.ranks) return "";
  return fmt::format(
      "Megatron refuses: {} micro-batches left over by groups of {}, fewer than {} "
      "ranks",
      left, group, s.ranks);
}

// What an automatic scheduler is given where there are no costs: F = B = W, and a W that keeps half
// of what its F did.
Costs EqualCosts(int stages, int micro_batches) {
  return Costs::Uniform(stages, micro_batches,
                        {.forward = 1,
                         .input_grad = 1,
                         .weight_grad = 1,
                         .fused_backward = 2,
                         .overlapped = 3,
                         .activation = 2,
                         .weight_state = 1});
}

ClosedForm NoForm(const Shape&, const StageCost&, TimeNs) { return {}; }

constexpr std::array<ScheduleInfo, 14> kSchedules = {{
    {.name = "gpipe",
     .placement = "linear",
     .constraint = "none",
     .bubble = "(p-1)(F+BW) + 2(p-1)c",
     .memory = "m",
     .source = "GPipe, arXiv 1811.06965",
     .stages_per_rank = One,
     .generate = [](const Shape& s) { return GPipe(s.ranks, s.micro_batches); },
     .refuse = AnyShape,
     .note = NoteGPipe,
     .closed_form = GPipeForm},
    {.name = "1f1b",
     .placement = "linear",
     .constraint = "none (m < p is legal and slow)",
     .bubble = "(p-1)(F+BW) + c(2(p-1)m/p + 2(p-2))",
     .memory = "min(p, m)",
     .source = "PipeDream-Flush, arXiv 2006.09503",
     .stages_per_rank = One,
     .generate = [](const Shape& s) { return OneFOneB(s.ranks, s.micro_batches); },
     .refuse = AnyShape,
     .note = Note1F1B,
     .closed_form = OneFOneBForm},
    {.name = "interleaved",
     .placement = "looped",
     .constraint = "m divisible by max(1, m div p), or --group G",
     .bubble = "(p-1)(F+BW)/v, for c = 0 and p | m",
     .memory = "p + (p-1)/v, for m > p",
     .source = "Megatron-LM, arXiv 2104.04473; order of PyTorch's Interleaved1F1B",
     .stages_per_rank = AsGiven,
     .generate =
         [](const Shape& s) {
           return Interleaved(s.ranks, s.micro_batches, s.stages_per_rank, GroupOf(s));
         },
     .refuse = NeedsWholeRounds,
     .note = NoteMegatronGroup,
     .closed_form = InterleavedForm},
    {.name = "zb-h1",
     .placement = "linear",
     .constraint = "none",
     .bubble = "(p-1)(F+B-W) + 4(p-1)c",
     .memory = "min(p, m)",
     .source = "Zero Bubble, arXiv 2401.10241",
     .stages_per_rank = One,
     .generate = [](const Shape& s) { return ZbH1(s.ranks, s.micro_batches); },
     .refuse = AnyShape,
     .note = NoNote,
     .closed_form = ZbH1Form},
    {.name = "zb-h2",
     .placement = "linear",
     .constraint = "none",
     .bubble = "(p-1)(F+B-2W) + 2(p-1)c, of the longest rank span",
     .memory = "min(2p-1, m)",
     .source = "Zero Bubble, arXiv 2401.10241",
     .stages_per_rank = One,
     .generate = [](const Shape& s) { return ZbH2(s.ranks, s.micro_batches); },
     .refuse = AnyShape,
     .note = NoNote,
     .closed_form = ZbH2Form},
    {.name = "zb-1p",
     .placement = "linear",
     .constraint = "none; made for the costs at hand",
     .bubble = "as zb-h1 for equal stages; least possible in its memory there",
     .memory = "min(p, m)",
     .source = "the heuristic of Zero Bubble, arXiv 2401.10241, section 3.1",
     .stages_per_rank = One,
     .generate =
         [](const Shape& s) { return Zb1p(EqualCosts(s.ranks, s.micro_batches)).ToOrders(); },
     .refuse = AnyShape,
     .note = NoNote,
     .closed_form = NoForm,
     .generate_for = Zb1p},
    {.name = "zb-2p",
     .placement = "linear",
     .constraint = "none; made for the costs at hand",
     .bubble = "near 0 of the longest rank span, for m >= 2p",
     .memory = "min(2p, m)",
     .source = "the heuristic of Zero Bubble, arXiv 2401.10241, section 3.1",
     .stages_per_rank = One,
     .generate =
         [](const Shape& s) { return Zb2p(EqualCosts(s.ranks, s.micro_batches)).ToOrders(); },
     .refuse = AnyShape,
     .note = NoNote,
     .closed_form = NoForm,
     .generate_for = Zb2p},
    {.name = "interleaved-zb",
     .placement = "looped",
     .constraint = "m divisible by max(1, m div p), or --group G",
     .bubble = "(p-1)(F+B-W)/v, for F = B = W, c = 0 and p | m",
     .memory = "p, for m > p",
     .source = "PyTorch's InterleavedZeroBubble",
     .stages_per_rank = AsGiven,
     .generate =
         [](const Shape& s) {
           return InterleavedZb(s.ranks, s.micro_batches, s.stages_per_rank, GroupOf(s));
         },
     .refuse = NeedsWholeRounds,
     .note = NoteMegatronGroup,
     .closed_form = InterleavedZbForm},
    {.name = "zb-v",
     .placement = "V",
     .constraint = "none",
     .bubble =
         "0 of the longest rank span, (p-1)F/2 of the makespan, for F = B = W, c = 0, m >= 2p",
     .memory = "p",
     .source = "ZB-V, arXiv 2401.10241; order of PyTorch's ZBVZeroBubble",
     .stages_per_rank = Two,
     .generate = [](const Shape& s) { return ZbV(s.ranks, s.micro_batches); },
     .refuse = AnyShape,
     .note = NoNote,
     .closed_form = ZbVForm},
    {.name = "zb-v-auto",
     .placement = "V",
     .constraint = "none; made for the costs at hand",
     .bubble = "at most zb-v's of the longest rank span, nearly always",
     .memory = "p",
     .source = "the heuristic of ZB-V, arXiv 2401.10241, section 6",
     .stages_per_rank = Two,
     .generate =
         [](const Shape& s) {
           return ZbVAuto(EqualCosts(2 * s.ranks, s.micro_batches)).ToOrders();
         },
     .refuse = AnyShape,
     .note = NoNote,
     .closed_form = NoForm,
     .generate_for = ZbVAuto},
    {.name = "v-half",
     .placement = "V",
     .constraint = "p <= 512",
     .bubble = "(3p-7)F/2 for even p, (3p-4)F/2 for odd (observed; F = B = W, c = 0, m >= p > 2)",
     .memory = "min(m, floor(p/2) + 1)",
     .source = "Controllable Memory, arXiv 2405.15362",
     .stages_per_rank = Two,
     .generate = [](const Shape& s) { return VHalf(s.ranks, s.micro_batches); },
     .refuse = NeedsFewRanks,
     .note = NoNote,
     .closed_form = VHalfForm},
    {.name = "v-min",
     .placement = "V",
     .constraint = "p <= 512",
     .bubble = "(4p-7)F/2 if 3 | p, else (4p-5)F/2 (observed; F = B = W, c = 0, m >= p > 2)",
     .memory = "min(m, floor((p+4)/3))",
     .source = "Controllable Memory, arXiv 2405.15362",
     .stages_per_rank = Two,
     .generate = [](const Shape& s) { return VMin(s.ranks, s.micro_batches); },
     .refuse = NeedsFewRanks,
     .note = NoNote,
     .closed_form = VMinForm},
    {.name = "dualpipe",
     .placement = "bidirectional",
     .constraint = "p even, m even, m >= 2p",
     .bubble = "(p/2-1)(F&B + BW - 3W), for F = B = W, c = 0",
     .memory = "p + 1; parameters twice",
     .source = "DeepSeek-V3 report, arXiv 2412.19437",
     .stages_per_rank = One,
     .generate = [](const Shape& s) { return DualPipe(s.ranks, s.micro_batches); },
     .refuse = NeedsEvenHalves,
     .note = NoNote,
     .closed_form = DualPipeForm},
    {.name = "dualpipe-v",
     .placement = "V",
     .constraint = "m >= 2p",
     .bubble = "(p-1)(F&B + BW - 3W)/2, for F = B = W, c = 0",
     .memory = "p + 1/2",
     .source = "DualPipe's README (\"cut in half\"); order of PyTorch's DualPipeV",
     .stages_per_rank = Two,
     .generate = [](const Shape& s) { return DualPipeV(s.ranks, s.micro_batches); },
     .refuse = NeedsTwicePerStage,
     .note = NoNote,
     .closed_form = DualPipeVForm},
}};

}  // namespace

namespace {

bool Runs(const ScheduleInfo& info, const Shape& shape) {
  if (info.Refusal(shape)) return false;
  try {
    Schedule(info.generate(shape));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// For a group whose strict order deadlocks: one that does not.
std::string AnotherGroup(const ScheduleInfo& info, Shape shape) {
  shape.group = 0;
  if (Runs(info, shape)) {
    return fmt::format("leave --group out, which makes it {}",
                       DefaultGroup(shape.ranks, shape.micro_batches));
  }
  for (const int group : {shape.ranks, shape.micro_batches}) {
    shape.group = group;
    if (Runs(info, shape)) return fmt::format("use --group {}", group);
  }
  return "use another number of micro-batches";
}

}  // namespace

Schedule ScheduleInfo::Make(const Shape& shape) const {
  if (std::optional<InputError> refusal = Refusal(shape)) throw *refusal;
  try {
    return Schedule(generate(shape));
  } catch (const InputError& error) {
    throw InputError(error.problem(), AnotherGroup(*this, shape));
  }
}

Schedule ScheduleInfo::Make(const Shape& shape, const Costs& costs) const {
  if (generate_for == nullptr) return Make(shape);
  if (std::optional<InputError> refusal = Refusal(shape)) throw *refusal;
  SPIRITLEVEL_CHECK(costs.num_stages() == shape.ranks * stages_per_rank(shape) &&
                        costs.num_micro_batches() == shape.micro_batches,
                    "costs are for the shape");
  return generate_for(costs);
}

std::span<const ScheduleInfo> AllSchedules() { return kSchedules; }

const ScheduleInfo& FindSchedule(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ScheduleInfo& info : kSchedules) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return EditDistance(name, a) < EditDistance(name, b);
  });
  throw InputError(fmt::format("there is no schedule \"{}\"", name),
                   fmt::format("there are {}", fmt::join(names, ", ")));
}

int DefaultGroup(int ranks, int micro_batches) {
  return micro_batches / std::max(1, micro_batches / ranks);
}

}  // namespace spiritlevel
