#include "calibrate/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

// A shape and the round in which it is measured. Held-out sizes are no powers of two and lie
// between the others, as real models' do.
struct Layer {
  int64_t tokens, in, out;
  int round;
  bool held_out = false;
};

constexpr Layer kLayers[] = {
    {64, 64, 64, 0},
    {128, 256, 256, 0},
    {256, 512, 512, 0},
    {32, 256, 256, 1},
    {16, 512, 512, 1},
    {128, 128, 128, 1},
    {96, 96, 96, 1, true},
    {512, 256, 256, 1},
    {192, 320, 320, 1, true},
    {128, 384, 1152, 1, true},
    {512, 512, 512, 1},
    {320, 640, 1728, 1, true},
    {512, 512, 2048, 1},
    {512, 1024, 1024, 1},
    {512, 896, 3584, 1, true},
    {512, 1024, 4096, 1},
    {64, 256, 256, 2},
    {24, 640, 640, 2, true},
    {32, 1024, 1024, 2},
    {128, 256, 512, 2},
    {256, 256, 256, 2},
    {384, 384, 384, 2, true},
    {128, 512, 512, 2},
    {256, 512, 1536, 2},
    {512, 768, 768, 2, true},
    {256, 768, 2304, 2, true},
    {768, 640, 640, 2, true},
    {1024, 512, 512, 2},
    {256, 1024, 2816, 2},
    {1024, 1024, 1024, 2},
    {640, 1280, 1280, 2, true},
    {48, 1536, 1536, 2, true},
    {512, 512, 8192, 2},
};

struct Heads {
  int64_t sequence, heads, kv_heads, head_dim;
  int round;
  bool held_out = false;
};

constexpr Heads kAttentions[] = {
    {128, 4, 4, 64, 0},       {512, 8, 2, 64, 0},         {256, 8, 8, 64, 1},
    {192, 6, 2, 64, 1, true}, {1024, 8, 8, 64, 1},        {640, 6, 6, 96, 1, true},
    {512, 8, 8, 128, 1},      {384, 12, 12, 64, 1, true}, {2048, 8, 2, 64, 2},
    {256, 16, 4, 128, 2},     {896, 10, 5, 80, 2, true},  {1536, 6, 6, 64, 2, true},
};

struct Sheet {
  int64_t rows, cols;
  int round;
  bool held_out = false;
};

struct Size {
  int64_t count;
  int round;
  bool held_out = false;
};

// Of a hidden state: tokens and width.
constexpr Sheet kSheets[] = {
    {64, 256, 0},   {512, 1024, 0},       {512, 512, 1},        {384, 320, 1, true},
    {256, 2048, 1}, {384, 896, 1, true},  {256, 4096, 1},       {768, 1280, 1, true},
    {128, 512, 2},  {320, 2304, 2, true}, {1024, 1024, 2},      {640, 5120, 2, true},
    {512, 384, 2},  {1024, 768, 2},       {448, 3072, 2, true}, {1536, 640, 2, true},
    {256, 8192, 2}, {1024, 2048, 2},      {512, 4096, 2},       {192, 6144, 2, true},
    {768, 1536, 2}, {512, 3584, 2},       {128, 8192, 2},
};

// Of the queries and keys of each head: norms have narrow rows too.
constexpr Sheet kHeadRows[] = {
    {2048, 128, 1},
    {4096, 64, 2},
    {3072, 96, 2, true},
};

// Of bytes read and written.
constexpr Size kStreams[] = {
    {3 << 16, 0}, {3 << 21, 0},         {3 << 18, 1}, {700'000, 1, true},
    {3 << 20, 1}, {4'000'000, 1, true}, {3 << 22, 1}, {11'000'000, 1, true},
    {3 << 23, 2}, {9'000'000, 2, true}, {3 << 24, 2}, {39'000'000, 2, true},
};

// Of logits: tokens and vocabulary.
constexpr Sheet kLogits[] = {
    {64, 1024, 0},   {128, 8192, 0},        {64, 4096, 1},   {96, 3000, 1, true},
    {256, 8192, 1},  {192, 5120, 1, true},  {256, 32000, 1}, {160, 10240, 1, true},
    {512, 16384, 2}, {384, 12800, 2, true}, {384, 32000, 2}, {320, 28000, 2, true},
};

constexpr Size kParameters[] = {
    {1 << 14, 0}, {1 << 20, 0},         {1 << 16, 1}, {100'000, 1, true},
    {1 << 18, 1}, {500'000, 1, true},   {1 << 22, 1}, {3'000'000, 2, true},
    {1 << 21, 2}, {1'300'000, 2, true},
};

constexpr Size kMessages[] = {
    {1 << 8, 0},  {1 << 22, 0},          {1 << 12, 1}, {20'000, 1, true},
    {1 << 16, 1}, {200'000, 1, true},    {1 << 19, 1}, {1'500'000, 1, true},
    {1 << 20, 1}, {6'000'000, 2, true},  {1 << 24, 2}, {700'000, 2, true},
    {1 << 21, 2}, {12'000'000, 2, true}, {1 << 18, 2},
};

class Planner {
 public:
  Planner(bool quick, Bytes element) : quick_(quick), element_(element) {}

  void AddLayers() {
    for (const Layer& l : kLayers) {
      const auto add = [&](int64_t m, int64_t n, int64_t k, Gemm::Use use) {
        AddKernel(Gemm{.m = m, .n = n, .k = k, .use = use}, l.round, l.held_out);
      };
      add(l.tokens, l.out, l.in, Gemm::Use::kForward);
      add(l.tokens, l.in, l.out, Gemm::Use::kInputGrad);
      add(l.in, l.out, l.tokens, Gemm::Use::kWeightGrad);
    }
  }

  void AddAttention() {
    for (const Heads& h : kAttentions) {
      Attention a{.batch = 1,
                  .heads = h.heads,
                  .kv_heads = h.kv_heads,
                  .sequence = h.sequence,
                  .head_dim = h.head_dim,
                  .element = element_};
      AddKernel(a, h.round, h.held_out);
      a.backward = true;
      AddKernel(a, h.round, h.held_out);
    }
  }

  void AddNorms() {
    const auto add = [this](const Sheet& s) {
      Norm norm{.rows = s.rows, .width = s.cols, .element = element_};
      AddKernel(norm, s.round, s.held_out);
      norm.part = Norm::Part::kInputGrad;
      AddKernel(norm, s.round, s.held_out);
      norm.part = Norm::Part::kWeightGrad;
      AddKernel(norm, s.round, s.held_out);
    };
    for (const Sheet& s : kSheets) add(s);
    for (const Sheet& s : kHeadRows) add(s);
  }

  void AddEmbeddingAndElementwise() {
    for (const Sheet& s : kSheets) {
      Embedding embedding{.tokens = s.rows, .width = s.cols, .element = element_};
      AddKernel(embedding, s.round, s.held_out);
      embedding.backward = true;
      AddKernel(embedding, s.round, s.held_out);
    }
    for (const Size& s : kStreams) {
      AddKernel(Elementwise{.bytes_moved = s.count}, s.round, s.held_out);
    }
  }

  void AddLoss() {
    for (const Sheet& s : kLogits) {
      Loss loss{.tokens = s.rows, .vocabulary = s.cols, .element = element_};
      AddKernel(loss, s.round, s.held_out);
      loss.backward = true;
      AddKernel(loss, s.round, s.held_out);
    }
  }

  void AddOptimizerAndMessages() {
    for (const Size& s : kParameters) {
      Add(PlanOptimizer(s.count, s.round, s.held_out));
    }
    for (const Size& s : kMessages) Add(PlanHandOver(s.count, s.round, s.held_out));
  }

  std::vector<PlannedWork> Take() {
    std::stable_sort(plan_.begin(), plan_.end(),
                     [](const PlannedWork& a, const PlannedWork& b) { return a.round < b.round; });
    return std::move(plan_);
  }

 private:
  void AddKernel(const Kernel& kernel, int round, bool held_out) {
    Add(PlanKernel(kernel, round, held_out));
  }

  void Add(PlannedWork work) {
    if (quick_ && work.round > 1) return;
    plan_.push_back(std::move(work));
  }

  bool quick_;
  Bytes element_;
  std::vector<PlannedWork> plan_;
};

struct PrimitiveOf {
  Primitive operator()(const Gemm& g) const { return static_cast<Primitive>(g.use); }
  Primitive operator()(const Attention& a) const {
    return a.backward ? Primitive::kAttentionBackward : Primitive::kAttentionForward;
  }
  Primitive operator()(const Norm& n) const {
    SPIRITLEVEL_CHECK(n.part != Norm::Part::kBackward, "the halves of a norm are planned");
    if (n.part == Norm::Part::kForward) return Primitive::kNormForward;
    return n.part == Norm::Part::kInputGrad ? Primitive::kNormInputGrad
                                            : Primitive::kNormWeightGrad;
  }
  Primitive operator()(const Elementwise&) const { return Primitive::kElementwise; }
  Primitive operator()(const Embedding& e) const {
    return e.backward ? Primitive::kEmbeddingBackward : Primitive::kEmbeddingForward;
  }
  Primitive operator()(const Loss& l) const {
    return l.backward ? Primitive::kLossBackward : Primitive::kLossForward;
  }
};

}  // namespace

PlannedWork PlanKernel(const Kernel& kernel, int round, bool held_out) {
  const int64_t rows = RowsOf(kernel);
  const double flops = Flops(kernel);
  return {.primitive = std::visit(PrimitiveOf(), kernel),
          .work = kernel,
          .units = flops > 0 ? flops : static_cast<double>(BytesMoved(kernel) / rows),
          .rows = rows,
          .what = ToString(kernel),
          .held_out = held_out,
          .round = round};
}

PlannedWork PlanOptimizer(int64_t parameters, int round, bool held_out) {
  return {.primitive = Primitive::kOptimizer,
          .work = OptimizerStep{parameters},
          .units = static_cast<double>(parameters),
          .what = fmt::format("optimizer {} parameters", parameters),
          .held_out = held_out,
          .round = round};
}

PlannedWork PlanHandOver(Bytes bytes, int round, bool held_out) {
  return {.primitive = Primitive::kHandOver,
          .work = EmptyOp{},
          .units = static_cast<double>(bytes),
          .what = fmt::format("hand-over {} bytes", bytes),
          .held_out = held_out,
          .round = round};
}

std::vector<PlannedWork> MakePlan(bool quick, Bytes element) {
  Planner planner(quick, element);
  planner.AddLayers();
  planner.AddAttention();
  planner.AddNorms();
  planner.AddEmbeddingAndElementwise();
  planner.AddLoss();
  planner.AddOptimizerAndMessages();
  return planner.Take();
}

}  // namespace spiritlevel
