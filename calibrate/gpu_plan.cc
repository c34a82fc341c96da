#include "calibrate/gpu_plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "models/parameters.h"

namespace spiritlevel {
namespace {

constexpr Bytes kElement = 2;

// A shape and the round in which it is measured; held-out ones are no powers of two.
struct Layer {
  int64_t tokens, in, out;
  int round;
  bool held_out = false;
};

// One tile of a matrix unit's kernel is 128 or 256 wide and a chip runs some hundred of them at a
// time: sizes on both sides of where one wave of tiles becomes two.
constexpr Layer kLayers[] = {
    {512, 1024, 1024, 0},        {2048, 4096, 4096, 0},        {4096, 4096, 14336, 0},
    {256, 1024, 1024, 1},        {1024, 2048, 2048, 1},        {128, 4096, 4096, 1},
    {1536, 1536, 4608, 1, true}, {2048, 2048, 8192, 1},        {3072, 3072, 3072, 1, true},
    {4096, 4096, 4096, 1},       {1024, 5120, 5120, 1, true},  {4096, 8192, 8192, 1},
    {640, 2560, 6912, 1, true},  {64, 2048, 2048, 2},          {128, 1024, 1024, 2},
    {512, 512, 512, 2},          {768, 768, 3072, 2, true},    {1024, 1024, 4096, 2},
    {2048, 1024, 1024, 2},       {2048, 5120, 13824, 2, true}, {4096, 2048, 2048, 2},
    {4096, 4096, 1024, 2},       {4096, 7168, 2048, 2, true},  {8192, 4096, 4096, 2},
    {4096, 8192, 28672, 2},      {8192, 3584, 18944, 2, true}, {4096, 4096, 32000, 2},
    {320, 4096, 11008, 2, true}, {2048, 8192, 10240, 2},       {6144, 6144, 6144, 2, true},
};

struct Heads {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  int round;
  bool held_out = false;
};

constexpr Heads kAttentions[] = {
    {1, 1024, 16, 16, 64, 0},       {1, 4096, 32, 8, 128, 0},       {1, 2048, 32, 8, 128, 1},
    {2, 1536, 24, 8, 128, 1, true}, {1, 2048, 16, 16, 64, 1},       {1, 3072, 20, 20, 64, 1, true},
    {1, 8192, 32, 8, 128, 1},       {1, 512, 32, 32, 128, 1},       {4, 1024, 32, 32, 64, 2},
    {1, 6144, 40, 8, 128, 2, true}, {4, 512, 32, 8, 128, 2},        {1, 768, 12, 12, 64, 2, true},
    {1, 16384, 8, 8, 128, 2},       {1, 5120, 28, 4, 128, 2, true}, {8, 2048, 16, 16, 128, 2},
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

constexpr Sheet kSheets[] = {
    {1024, 1024, 0},       {4096, 4096, 0},       {4096, 2048, 1}, {2048, 3072, 1, true},
    {4096, 8192, 1},       {4096, 5120, 1, true}, {8192, 1024, 1}, {3072, 2560, 1, true},
    {16384, 4096, 2},      {2048, 8192, 2},       {8192, 2048, 2}, {6144, 7168, 2, true},
    {2048, 1536, 2, true}, {1024, 12288, 2},      {4096, 512, 2},  {5120, 3584, 2, true},
    {1024, 16384, 2},      {8192, 6144, 2, true},
};

// Of the queries and keys of each head.
constexpr Sheet kHeadRows[] = {{131072, 128, 1}, {65536, 64, 2}, {98304, 96, 2, true}};

constexpr Size kStreams[] = {
    {3 << 20, 0}, {3 << 26, 0},          {3 << 22, 1}, {11'000'000, 1, true},
    {3 << 24, 1}, {90'000'000, 1, true}, {3 << 27, 1}, {160'000'000, 1, true},
    {3 << 18, 2}, {5'000'000, 2, true},  {3 << 28, 2}, {330'000'000, 2, true},
};

// Of logits: tokens and vocabulary.
constexpr Sheet kLogits[] = {
    {512, 8192, 0},        {2048, 32000, 0},        {1024, 32000, 1}, {1536, 20480, 1, true},
    {2048, 128256, 1},     {2560, 51200, 1, true},  {4096, 32000, 1}, {4096, 128256, 2},
    {768, 50304, 2, true}, {3072, 152064, 2, true}, {8192, 50304, 2},
};

constexpr Size kParameters[] = {
    {1 << 20, 0}, {1 << 26, 0},          {1 << 22, 1}, {12'000'000, 1, true},
    {1 << 24, 1}, {45'000'000, 1, true}, {1 << 28, 1}, {180'000'000, 2, true},
    {1 << 27, 2}, {90'000'000, 2, true},
};

constexpr Size kMessages[] = {
    {1 << 12, 0},           {1 << 24, 0},       {1 << 16, 1}, {50'000, 1, true},
    {1 << 20, 1},           {700'000, 1, true}, {1 << 22, 1}, {6'000'000, 1, true},
    {1 << 26, 1},           {1 << 18, 2},       {1 << 8, 2},  {40'000'000, 2, true},
    {100'000'000, 2, true}, {1 << 27, 2},
};

class Planner {
 public:
  explicit Planner(int rounds) : rounds_(rounds) {}

  void AddLayers() {
    for (const Layer& l : kLayers) {
      Add(Gemm{l.tokens, l.out, l.in, Gemm::Use::kForward}, l);
      Add(Gemm{l.tokens, l.in, l.out, Gemm::Use::kInputGrad}, l);
      Add(Gemm{l.in, l.out, l.tokens, Gemm::Use::kWeightGrad}, l);
    }
  }

  void AddAttention() {
    for (const Heads& h : kAttentions) {
      Attention a{.batch = h.batch,
                  .heads = h.heads,
                  .kv_heads = h.kv_heads,
                  .sequence = h.sequence,
                  .head_dim = h.head_dim,
                  .element = kElement};
      Add(a, h);
      a.backward = true;
      Add(a, h);
    }
  }

  void AddRows() {
    for (const Sheet& s : kSheets) {
      AddNorms(s);
      Embedding embedding{.tokens = s.rows, .width = s.cols, .element = kElement};
      Add(embedding, s);
      embedding.backward = true;
      Add(embedding, s);
    }
    for (const Sheet& s : kHeadRows) AddNorms(s);
  }

  void AddStreams() {
    for (const Size& s : kStreams) Add(Elementwise{.bytes_moved = s.count}, s);
    for (const Sheet& s : kLogits) {
      Loss loss{.tokens = s.rows, .vocabulary = s.cols, .element = kElement};
      Add(loss, s);
      loss.backward = true;
      Add(loss, s);
    }
    for (const Size& s : kParameters) Add(PlanOptimizer(s.count, s.round, s.held_out));
    for (const Size& s : kMessages) Add(PlanHandOver(s.count, s.round, s.held_out));
  }

  // Of a model: fitted, and in the first round.
  void AddOfModel(const Kernel& kernel) {
    if (const Norm* const norm = std::get_if<Norm>(&kernel);
        norm != nullptr && norm->part == Norm::Part::kBackward) {
      Norm half = *norm;
      half.part = Norm::Part::kInputGrad;
      AddOfModel(half);
      half.part = Norm::Part::kWeightGrad;
      AddOfModel(half);
      return;
    }
    const Attention* const attention = std::get_if<Attention>(&kernel);
    if (attention != nullptr && attention->window > 0) return;
    const PlannedWork work = PlanKernel(kernel, /*round=*/0, /*held_out=*/false);
    if (work.units > 0) Add(work);
  }

  void Add(PlannedWork work) {
    if (work.round >= rounds_) return;
    if (!known_.insert(work.what).second) return;
    plan_.push_back(std::move(work));
  }

  std::vector<PlannedWork> Take() {
    std::stable_sort(plan_.begin(), plan_.end(),
                     [](const PlannedWork& a, const PlannedWork& b) { return a.round < b.round; });
    return std::move(plan_);
  }

 private:
  template <typename Shape>
  void Add(const Kernel& kernel, const Shape& shape) {
    Add(PlanKernel(kernel, shape.round, shape.held_out));
  }

  void AddNorms(const Sheet& s) {
    for (const Norm::Part part :
         {Norm::Part::kForward, Norm::Part::kInputGrad, Norm::Part::kWeightGrad}) {
      Add(Norm{.rows = s.rows, .width = s.cols, .part = part, .element = kElement}, s);
    }
  }

  int rounds_;
  std::set<std::string> known_;  // what a model and the sweep both have is measured once
  std::vector<PlannedWork> plan_;
};

void AddSweep(Planner* planner) {
  planner->AddLayers();
  planner->AddAttention();
  planner->AddRows();
  planner->AddStreams();
}

}  // namespace

std::vector<PlannedWork> MakeGpuPlan(bool quick) {
  Planner planner(quick ? 2 : 3);
  AddSweep(&planner);
  return planner.Take();
}

std::vector<PlannedWork> MakeGpuPlan(const Architecture& model, const BlockShape& shape) {
  Planner planner(/*rounds=*/2);
  std::vector<BlockWork> blocks = {EmbeddingWork(model, shape), HeadWork(model, shape)};
  // Layers differ in the window of their attention alone.
  std::set<int64_t> windows;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    if (windows.insert(model.window(layer)).second) {
      blocks.push_back(LayerWork(model, shape, layer));
    }
  }
  for (const BlockWork& block : blocks) {
    for (const auto* kernels : {&block.forward, &block.input_grad, &block.weight_grad}) {
      for (const NamedKernel& named : *kernels) planner.AddOfModel(named.kernel);
    }
  }
  // A step is a line in its parameters: a layer that has more of them is told from as many.
  constexpr int64_t kMostParameters = int64_t{1} << 28;
  const int64_t parameters = std::min(CountParameters(model).per_layer(), kMostParameters);
  planner.Add(PlanOptimizer(parameters, /*round=*/0, /*held_out=*/false));
  AddSweep(&planner);
  return planner.Take();
}

}  // namespace spiritlevel
