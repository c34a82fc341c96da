// The kernels of a layer, against published counts of work.
#include "models/layer_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/parameters.h"
#include "tests/base/input_error_of.h"
#include "tests/models/configs.h"

namespace spiritlevel {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The papers count every pair of tokens.
double FlopsWithoutMask(std::vector<NamedKernel> kernels) {
  for (NamedKernel& k : kernels) {
    if (Attention* attention = std::get_if<Attention>(&k.kernel)) attention->causal = false;
  }
  return FlopsOf(kernels);
}

// arXiv 2401.10241, table 1: F s b h (24 h + 4 s), B s b h (24 h + 8 s), W s b h 24 h.
TEST(LayerOps, CountTheWorkOfThePapersLayer) {
  const double s = 1024, b = 3, h = 2048;
  const BlockWork work =
      LayerWork(PaperGpt(4, 2048, 16, true), {.sequence = 1024, .micro_batch = 3}, 0);
  EXPECT_DOUBLE_EQ(FlopsWithoutMask(work.forward), s * b * h * (24 * h + 4 * s));
  EXPECT_DOUBLE_EQ(FlopsWithoutMask(work.input_grad), s * b * h * (24 * h + 8 * s));
  EXPECT_DOUBLE_EQ(FlopsWithoutMask(work.weight_grad), s * b * h * 24 * h);
}

// C49: Llama-3-8B, sequence 8192, GFLOP a token: 57.9 with every pair, 51.5 causal; 6 N gives 48.2
// with and 45.0 without the embedding.
TEST(LayerOps, AddUpToTheKnownWorkOfATokenOfLlama8B) {
  const Architecture llama = Parsed(Llama8B());
  const BlockShape shape{.sequence = 8192, .micro_batch = 1};
  double full = 0;
  double causal = 0;
  const auto add = [&](const BlockWork& work) {
    for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW}) {
      full += FlopsWithoutMask(work.kernels(pass));
      causal += FlopsOf(work.kernels(pass));
    }
  };
  for (int64_t layer = 0; layer < llama.layers; ++layer) add(LayerWork(llama, shape, layer));
  add(HeadWork(llama, shape));
  add(EmbeddingWork(llama, shape));
  EXPECT_NEAR(full / 8192e9, 57.9, 0.05);
  EXPECT_NEAR(causal / 8192e9, 51.5, 0.05);
  const ParameterCount count = CountParameters(llama);
  EXPECT_NEAR(6 * static_cast<double>(count.total()) / 1e9, 48.2, 0.05);
  EXPECT_NEAR(6 * static_cast<double>(count.total() - count.embedding) / 1e9, 45.0, 0.05);
}

// Every weight is met once by each token in each pass: 2 FLOPs a parameter of the projections.
TEST(LayerOps, EachPassMeetsEachProjectionOnce) {
  for (const auto& config : {Llama8B(), Qwen06B(), Gpt2Small(), NeoX(), Gemma()}) {
    const Architecture a = Parsed(config);
    const BlockWork work = LayerWork(a, {.sequence = 128, .micro_batch = 1}, 0);
    double weights = 0;
    for (const TensorCount& tensor : CountParameters(a).layer) {
      const bool matrix = tensor.parameters >= a.hidden * a.head_dim;
      if (matrix) weights += static_cast<double>(tensor.parameters);
    }
    for (const Pass pass : {Pass::kF, Pass::kB, Pass::kW}) {
      double gemms = 0;
      for (const NamedKernel& k : work.kernels(pass)) {
        if (std::holds_alternative<Gemm>(k.kernel)) gemms += Flops(k.kernel);
      }
      EXPECT_DOUBLE_EQ(gemms, 2 * 128 * weights) << a.name << Name(pass);
    }
  }
}

TEST(LayerOps, ShapesOfTheThreeUsesOfAProjectionAreThoseOfItsOperands) {
  const BlockWork work = LayerWork(Parsed(Llama8B()), {.sequence = 512, .micro_batch = 2}, 0);
  const auto first = [](const std::vector<NamedKernel>& kernels, const char* name) {
    for (const NamedKernel& k : kernels) {
      if (k.name == name && std::holds_alternative<Gemm>(k.kernel)) return std::get<Gemm>(k.kernel);
    }
    return Gemm{};
  };
  EXPECT_EQ(first(work.forward, "q, k, v projection"),
            (Gemm{.m = 1024, .n = 6144, .k = 4096, .use = Gemm::Use::kForward}));
  EXPECT_EQ(first(work.input_grad, "q, k, v projection"),
            (Gemm{.m = 1024, .n = 4096, .k = 6144, .use = Gemm::Use::kInputGrad}));
  EXPECT_EQ(first(work.weight_grad, "gate and up projection"),
            (Gemm{.m = 4096, .n = 28672, .k = 1024, .use = Gemm::Use::kWeightGrad}));
}

std::vector<std::string> TextsOf(const std::vector<NamedKernel>& kernels) {
  std::vector<std::string> texts;
  for (const NamedKernel& k : kernels) texts.push_back(ToString(k.kernel));
  return texts;
}

// 4 wide, 2 heads of 3, 1 of keys and values, MLP of 5; 7 tokens of 2 bytes.
Architecture Tiny() {
  Architecture a;
  a.layers = 1;
  a.hidden = 4;
  a.heads = 2;
  a.kv_heads = 1;
  a.head_dim = 3;
  a.ffn = 5;
  a.vocabulary = 11;
  a.qk_norms = true;
  return a;
}
constexpr BlockShape kTinyShape{.sequence = 7, .micro_batch = 1};

TEST(LayerOps, OfALayerAreTheseInThisOrder) {
  const BlockWork work = LayerWork(Tiny(), kTinyShape, 0);
  EXPECT_THAT(TextsOf(work.forward),
              ElementsAre("norm 7 x 4 forward",       //
                          "gemm 7 x 12 x 4 forward",  // q, k, v: 6 + 3 + 3
                          "norm 21 x 3 forward",      // of each of 3 heads
                          "elementwise 252 bytes",    // 7 x 9 read and written
                          "attention 1 x 2 heads (1 of keys) x 7 x 3 causal forward",
                          "gemm 7 x 4 x 6 forward",   //
                          "elementwise 168 bytes",    // 7 x 4: two read, one written
                          "norm 7 x 4 forward",       //
                          "gemm 7 x 10 x 4 forward",  // gate and up
                          "elementwise 210 bytes",    // 7 x 5: two read, one written
                          "gemm 7 x 4 x 5 forward",   //
                          "elementwise 168 bytes"));
  EXPECT_THAT(TextsOf(work.input_grad),
              ElementsAre("elementwise 168 bytes",       //
                          "gemm 7 x 5 x 4 input grad",   //
                          "elementwise 350 bytes",       // 7 x 5: three read, two written
                          "gemm 7 x 4 x 10 input grad",  //
                          "norm 7 x 4 backward",         //
                          "elementwise 168 bytes",       //
                          "gemm 7 x 6 x 4 input grad",   //
                          "attention 1 x 2 heads (1 of keys) x 7 x 3 causal backward",
                          "elementwise 252 bytes",       //
                          "norm 21 x 3 backward",        //
                          "gemm 7 x 4 x 12 input grad",  //
                          "norm 7 x 4 backward"));
  EXPECT_THAT(TextsOf(work.weight_grad),
              ElementsAre("gemm 4 x 12 x 7 weight grad", "gemm 6 x 4 x 7 weight grad",
                          "gemm 4 x 10 x 7 weight grad", "gemm 5 x 4 x 7 weight grad"));
}

TEST(LayerOps, OfTheEndsAreThese) {
  const BlockWork embedding = EmbeddingWork(Tiny(), kTinyShape);
  EXPECT_THAT(TextsOf(embedding.forward), ElementsAre("embedding 7 x 4 forward"));
  EXPECT_THAT(TextsOf(embedding.input_grad), IsEmpty());
  EXPECT_THAT(TextsOf(embedding.weight_grad), ElementsAre("embedding 7 x 4 backward"));
  const BlockWork head = HeadWork(Tiny(), kTinyShape);
  EXPECT_THAT(TextsOf(head.forward),
              ElementsAre("norm 7 x 4 forward", "gemm 7 x 11 x 4 forward", "loss 7 x 11 forward"));
  EXPECT_THAT(
      TextsOf(head.input_grad),
      ElementsAre("loss 7 x 11 backward", "gemm 7 x 4 x 11 input grad", "norm 7 x 4 backward"));
  EXPECT_THAT(TextsOf(head.weight_grad), ElementsAre("gemm 4 x 11 x 7 weight grad"));
}

// A plain MLP, both branches from one input, learned positions, dropout.
TEST(LayerOps, FollowTheModelsSwitches) {
  Architecture a = Tiny();
  a.qk_norms = a.gated_mlp = false;
  a.parallel_residual = a.learned_positions = true;
  a.residual_dropout = a.embedding_dropout = true;
  a.windows = {3};
  EXPECT_THAT(TextsOf(LayerWork(a, kTinyShape, 0).forward),
              ElementsAre("norm 7 x 4 forward", "gemm 7 x 12 x 4 forward",
                          "attention 1 x 2 heads (1 of keys) x 7 x 3 causal window 3 forward",
                          "gemm 7 x 4 x 6 forward", "norm 7 x 4 forward", "gemm 7 x 5 x 4 forward",
                          "elementwise 140 bytes",    // 7 x 5: one read, one written
                          "gemm 7 x 4 x 5 forward",   //
                          "elementwise 280 bytes"));  // 7 x 4: three read, one written; two masks
  a.windows = {7};                                    // sees all there is
  EXPECT_THAT(TextsOf(LayerWork(a, kTinyShape, 0).forward),
              Contains("attention 1 x 2 heads (1 of keys) x 7 x 3 causal forward"));
  EXPECT_THAT(
      TextsOf(EmbeddingWork(a, kTinyShape).forward),
      ElementsAre("embedding 7 x 4 forward", "elementwise 168 bytes", "elementwise 140 bytes"));
  a.parallel_residual = false;
  EXPECT_THAT(TextsOf(LayerWork(a, kTinyShape, 0).input_grad),
              Contains("elementwise 196 bytes").Times(2));  // 168, and a mask of 28
}

// A matrix of 2 heads x 7 x 7 of 2 bytes is written and read twice, a mask of it is read.
TEST(LayerOps, AStoredMatrixIsCarriedToMemoryAndBack) {
  Architecture a = Tiny();
  BlockShape shape = kTinyShape;
  shape.stored_attention = true;
  EXPECT_THAT(TextsOf(LayerWork(a, shape, 0).forward), Contains("elementwise 784 bytes"));
  a.attention_dropout = true;
  EXPECT_THAT(TextsOf(LayerWork(a, shape, 0).forward), Contains("elementwise 882 bytes"));
}

TEST(Kernels, MoveWhatTheyReadAndWrite) {
  const Norm norm{.rows = 3, .width = 5, .element = 2};
  const auto part = [&](Norm::Part p) {
    Norm n = norm;
    n.part = p;
    return BytesMoved(n);
  };
  EXPECT_EQ(part(Norm::Part::kForward), 2 * 30);
  EXPECT_EQ(part(Norm::Part::kBackward), 3 * 30);
  EXPECT_EQ(part(Norm::Part::kInputGrad), 3 * 30);
  EXPECT_EQ(part(Norm::Part::kWeightGrad), 2 * 30);
  EXPECT_EQ(BytesMoved(Embedding{.tokens = 3, .width = 5, .element = 4}), 2 * 60);
  EXPECT_EQ(BytesMoved(Embedding{.tokens = 3, .width = 5, .backward = true, .element = 4}), 3 * 60);
  EXPECT_EQ(BytesMoved(Loss{.tokens = 3, .vocabulary = 5, .element = 4}), 60);
  EXPECT_EQ(BytesMoved(Loss{.tokens = 3, .vocabulary = 5, .backward = true, .element = 4}), 120);
  EXPECT_EQ(BytesMoved(Gemm{.m = 3, .n = 5, .k = 7}), 0);
}

TEST(LayerOps, BRunsFromTheLastOperationToTheFirst) {
  const BlockWork work = LayerWork(Parsed(Llama8B()), {.sequence = 512, .micro_batch = 1}, 0);
  EXPECT_EQ(work.forward.front().name, "attention norm");
  EXPECT_EQ(work.input_grad.back().name, "attention norm");
  EXPECT_EQ(work.input_grad.front().name, "residual addition");
}

// A window of w: the first w tokens see 1, 2, ... w, the others w.
TEST(LayerOps, AWindowCutsTheWorkOfAttention) {
  for (int64_t s = 1; s <= 12; ++s) {
    for (int64_t w = 0; w <= 14; ++w) {
      for (const bool causal : {true, false}) {
        int64_t pairs = 0;
        for (int64_t q = 0; q < s; ++q) {
          for (int64_t k = 0; k < s; ++k) {
            const bool masked = causal && k > q;
            const bool far = w > 0 && std::abs(q - k) >= w;
            pairs += masked || far ? 0 : 1;
          }
        }
        EXPECT_DOUBLE_EQ(AttendedPairs({.sequence = s, .causal = causal, .window = w}),
                         static_cast<double>(pairs))
            << s << " " << w << " " << causal;
      }
    }
  }
  const Architecture gemma = Parsed(Gemma());
  const BlockShape shape{.sequence = 8192, .micro_batch = 1};
  EXPECT_LT(FlopsOf(LayerWork(gemma, shape, 0).forward),
            FlopsOf(LayerWork(gemma, shape, 1).forward));
}

TEST(LayerOps, ASplitNormHasItsHalvesInBAndW) {
  const Architecture gpt = PaperGpt(1, 256, 4, false);
  const auto norms = [&](bool split, Pass pass) {
    const BlockWork work =
        LayerWork(gpt, {.sequence = 64, .micro_batch = 1, .norm_grads_in_w = split}, 0);
    int count = 0;
    for (const NamedKernel& k : work.kernels(pass)) count += std::holds_alternative<Norm>(k.kernel);
    return count;
  };
  EXPECT_EQ(norms(false, Pass::kB), 2);
  EXPECT_EQ(norms(false, Pass::kW), 0);
  EXPECT_EQ(norms(true, Pass::kB), 2);
  EXPECT_EQ(norms(true, Pass::kW), 2);
}

TEST(LayerOps, ShapesThatTheModelCannotRunAreRefused) {
  const Architecture gpt2 = Parsed(Gpt2Small());
  const auto refusal = [&](const BlockShape& shape) {
    return InputErrorOf([&] { CheckShape(gpt2, shape); });
  };
  EXPECT_EQ(refusal({.sequence = 1024, .micro_batch = 4}), "");
  EXPECT_THAT(refusal({.sequence = 1025, .micro_batch = 1}), HasSubstr("the 1024 positions"));
  EXPECT_THAT(refusal({.sequence = 0, .micro_batch = 1}), HasSubstr("sequence: 0"));
  EXPECT_THAT(refusal({.sequence = 8, .micro_batch = -1}), HasSubstr("micro-batch: -1"));
  EXPECT_THAT(refusal({.sequence = INT64_MAX, .micro_batch = 1}), HasSubstr("sequence"));
  EXPECT_THAT(InputErrorOf([] {
                CheckShape(Parsed(Llama8B()),
                           {.sequence = kMaxModelPositions, .micro_batch = 1 << 20});
              }),
              HasSubstr("fit no machine"));
}

}  // namespace
}  // namespace spiritlevel
