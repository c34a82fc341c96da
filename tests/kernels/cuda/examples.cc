#include "tests/kernels/cuda/examples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "base/check.h"
#include "kernels/cpu/model/rotation.h"
#include "kernels/cuda/math/rows.h"

namespace spiritlevel {
namespace {

using cuda::Call;
using cuda::ElementType;
using cuda::View;

constexpr ElementType kFp32 = ElementType::kFloat32;
constexpr float kEpsilon = 1e-5f;
constexpr int64_t kVocabulary = 17;

using Maker = std::function<Call(const ExampleShape&, Example*)>;

// [1, rows] of 1 / rms, or [2, rows] of means and 1 / deviation.
View Statistics(const View& x, bool about_the_mean, Example* e) {
  const Doubles values = ValuesOf(x);
  const auto cols = static_cast<size_t>(x.cols);
  Doubles means;
  Doubles inverses;
  for (size_t row = 0; row < values.size(); row += cols) {
    double mean = 0;
    double square = 0;
    for (size_t j = row; j < row + cols; ++j) mean += values[j] / static_cast<double>(cols);
    if (!about_the_mean) mean = 0;
    for (size_t j = row; j < row + cols; ++j) {
      square += (values[j] - mean) * (values[j] - mean) / static_cast<double>(cols);
    }
    means.push_back(mean);
    inverses.push_back(1 / std::sqrt(square + static_cast<double>(kEpsilon)));
  }
  View statistics = e->Random(kFp32, about_the_mean ? 2 : 1, x.rows);
  if (about_the_mean) SetValues(statistics.Rows(0, 1), means);
  SetValues(statistics.Rows(about_the_mean ? 1 : 0, 1), inverses);
  return statistics;
}

View LogSumExp(const View& logits, Example* e) {
  const Doubles values = ValuesOf(logits);
  Doubles sums(static_cast<size_t>(logits.rows));
  for (size_t i = 0; i < values.size(); ++i) {
    sums[i / static_cast<size_t>(logits.cols)] += std::exp(values[i]);
  }
  for (double& sum : sums) sum = std::log(sum);
  const View view = e->RandomDense(kFp32, 1, logits.rows);
  SetValues(view, sums);
  return view;
}

View SumsWorkspace(const ExampleShape& s, int64_t sums, Example* e) {
  return e->RandomDense(kFp32, 1, sums * cuda::ColumnSumsWorkspace(s.rows, s.cols));
}

Call MakeRotate(const ExampleShape& s, bool back, Example* e) {
  const int64_t sequence = s.rows / 2 + 1;  // positions begin again in the middle
  std::vector<float> numbers(static_cast<size_t>(2 * sequence * s.cols));
  cpu::FillRotation(100, cpu::Matrix(numbers.data(), 2 * sequence, s.cols));
  const View table = e->RandomDense(kFp32, 2 * sequence, s.cols);
  SetValues(table, AsDoubles(numbers));
  return cuda::Rotate{.table = table,
                      .head_dim = 2 * s.cols,
                      .back = back,
                      .x = e->Random(s.type, s.rows, 4 * s.cols)};
}

cuda::AdamWStep MakeAdamW(const ExampleShape& s, int64_t step, Example* e) {
  cuda::AdamWStep call{.rate = 0.01f,
                       .weight_decay = 0.1f,
                       .step = step,
                       .clip = 0.5f,
                       .gradient = e->Random(kFp32, s.rows, s.cols),
                       .exact = e->Random(kFp32, s.rows, s.cols),
                       .first_moment = e->Random(kFp32, s.rows, s.cols),
                       .second_moment = e->Random(kFp32, s.rows, s.cols)};
  Doubles squares = ValuesOf(call.second_moment);
  for (double& square : squares) square = 0.01 + square * square;
  SetValues(call.second_moment, squares);
  if (s.type == ElementType::kBFloat16) call.stored = e->Random(s.type, s.rows, s.cols);
  return call;
}

std::map<std::string, Maker> ElementwiseMakers() {
  using S = const ExampleShape&;
  return {
      {"product",
       [](S s, Example* e) -> Call {
         return cuda::Product{.a = e->Random(s.type, s.cols, s.rows),
                              .transpose_a = true,
                              .b = e->Random(s.type, s.cols, 5),
                              .c = e->Random(kFp32, s.rows, 5),
                              .alpha = 0.5f,
                              .beta = 1};
       }},
      {"fill",
       [](S s, Example* e) -> Call {
         return cuda::Fill{.to = e->Random(s.type, s.rows, s.cols), .value = 0.7f};
       }},
      {"convert",
       [](S s, Example* e) -> Call {
         return cuda::Convert{.from = e->Random(kFp32, s.rows, s.cols),
                              .to = e->Random(s.type, s.rows, s.cols)};
       }},
      {"add",
       [](S s, Example* e) -> Call {
         const View a = e->Random(s.type, s.rows, s.cols);
         return cuda::Add{.a = a, .b = e->Random(s.type, s.rows, s.cols), .to = a};
       }},
      {"add_bias",
       [](S s, Example* e) -> Call {
         return cuda::AddBias{.bias = e->Random(s.type, 1, s.cols),
                              .x = e->Random(s.type, s.rows, s.cols)};
       }},
      {"swiglu_forward",
       [](S s, Example* e) -> Call {
         return cuda::SwigluForward{.gate = e->Random(s.type, s.rows, s.cols),
                                    .up = e->Random(s.type, s.rows, s.cols),
                                    .y = e->Random(s.type, s.rows, s.cols)};
       }},
      {"swiglu_backward",
       [](S s, Example* e) -> Call {
         const View gate = e->Random(s.type, s.rows, s.cols);
         const View up = e->Random(s.type, s.rows, s.cols);
         return cuda::SwigluBackward{.gate = gate,
                                     .up = up,
                                     .dy = e->Random(s.type, s.rows, s.cols),
                                     .dgate = gate,
                                     .dup = up};
       }},
      {"gelu_forward",
       [](S s, Example* e) -> Call {
         return cuda::GeluForward{.x = e->Random(s.type, s.rows, s.cols),
                                  .y = e->Random(s.type, s.rows, s.cols)};
       }},
      {"gelu_backward",
       [](S s, Example* e) -> Call {
         const View x = e->Random(s.type, s.rows, s.cols);
         return cuda::GeluBackward{.x = x, .dy = e->Random(s.type, s.rows, s.cols), .dx = x};
       }},
      {"rotate", [](S s, Example* e) -> Call { return MakeRotate(s, s.rows % 2 == 0, e); }},
      {"dropout",
       [](S s, Example* e) -> Call {
         return cuda::Dropout{.probability = 0.3,
                              .seed = 0x123456789ABCDEF,
                              .iteration = 7,
                              .micro_batch = 3,
                              .layer = 11,
                              .place = 2,
                              .x = e->RandomDense(s.type, s.rows, s.cols)};
       }},
      {"adamw_step", [](S s, Example* e) -> Call { return MakeAdamW(s, 3, e); }},
      {"adamw_undo",
       [](S s, Example* e) -> Call { return cuda::AdamWUndo{MakeAdamW(s, s.rows % 3 + 1, e)}; }},
  };
}

std::map<std::string, Maker> SumMakers() {
  using S = const ExampleShape&;
  return {
      {"column_sums",
       [](S s, Example* e) -> Call {
         return cuda::ColumnSums{.x = e->Random(s.type, s.rows, s.cols),
                                 .sums = e->Random(kFp32, 1, s.cols),
                                 .workspace = SumsWorkspace(s, 1, e)};
       }},
      {"sum_of_squares",
       [](S s, Example* e) -> Call {
         return cuda::SumOfSquares{
             .x = e->Random(kFp32, s.rows, s.cols),
             .sum = e->RandomDense(ElementType::kFloat64, 1, 1),
             .workspace = e->RandomDense(ElementType::kFloat64, 1,
                                         cuda::SumOfSquaresWorkspace(s.rows * s.cols))};
       }},
      {"rms_norm_weight_grad",
       [](S s, Example* e) -> Call {
         const View x = e->Random(s.type, s.rows, s.cols);
         return cuda::RmsNormWeightGrad{.x = x,
                                        .statistics = Statistics(x, false, e),
                                        .dy = e->Random(s.type, s.rows, s.cols),
                                        .dweight = e->Random(kFp32, 1, s.cols),
                                        .workspace = SumsWorkspace(s, 1, e)};
       }},
      {"layer_norm_weight_grad",
       [](S s, Example* e) -> Call {
         const View x = e->Random(s.type, s.rows, s.cols);
         return cuda::LayerNormWeightGrad{.x = x,
                                          .statistics = Statistics(x, true, e),
                                          .dy = e->Random(s.type, s.rows, s.cols),
                                          .dweight = e->Random(kFp32, 1, s.cols),
                                          .dbias = e->Random(kFp32, 1, s.cols),
                                          .workspace = SumsWorkspace(s, 2, e)};
       }},
      {"embedding_weight_grad",
       [](S s, Example* e) -> Call {
         return cuda::EmbeddingWeightGrad{.tokens = e->Integers(s.rows, 0, kVocabulary),
                                          .dx = e->Random(s.type, s.rows, s.cols),
                                          .dtable = e->Random(kFp32, kVocabulary, s.cols)};
       }},
  };
}

std::map<std::string, Maker> RowMakers() {
  using S = const ExampleShape&;
  return {
      {"rms_norm_forward",
       [](S s, Example* e) -> Call {
         return cuda::RmsNormForward{.x = e->Random(s.type, s.rows, s.cols),
                                     .weight = e->Random(s.type, 1, s.cols),
                                     .epsilon = kEpsilon,
                                     .y = e->Random(s.type, s.rows, s.cols),
                                     .statistics = e->Random(kFp32, 1, s.rows)};
       }},
      {"rms_norm_input_grad",
       [](S s, Example* e) -> Call {
         const View x = e->Random(s.type, s.rows, s.cols);
         return cuda::RmsNormInputGrad{.x = x,
                                       .weight = e->Random(s.type, 1, s.cols),
                                       .statistics = Statistics(x, false, e),
                                       .dy = e->Random(s.type, s.rows, s.cols),
                                       .dx = e->Random(s.type, s.rows, s.cols)};
       }},
      {"layer_norm_forward",
       [](S s, Example* e) -> Call {
         return cuda::LayerNormForward{.x = e->Random(s.type, s.rows, s.cols),
                                       .weight = e->Random(s.type, 1, s.cols),
                                       .bias = e->Random(s.type, 1, s.cols),
                                       .epsilon = kEpsilon,
                                       .y = e->Random(s.type, s.rows, s.cols),
                                       .statistics = e->Random(kFp32, 2, s.rows)};
       }},
      {"layer_norm_input_grad",
       [](S s, Example* e) -> Call {
         const View x = e->Random(s.type, s.rows, s.cols);
         return cuda::LayerNormInputGrad{.x = x,
                                         .weight = e->Random(s.type, 1, s.cols),
                                         .statistics = Statistics(x, true, e),
                                         .dy = e->Random(s.type, s.rows, s.cols),
                                         .dx = e->Random(s.type, s.rows, s.cols)};
       }},
      {"embedding_forward",
       [](S s, Example* e) -> Call {
         return cuda::EmbeddingForward{.tokens = e->Integers(s.rows, 0, kVocabulary),
                                       .table = e->Random(s.type, kVocabulary, s.cols),
                                       .x = e->Random(s.type, s.rows, s.cols)};
       }},
      {"cross_entropy_forward",
       [](S s, Example* e) -> Call {
         return cuda::CrossEntropyForward{
             .targets = e->Integers(s.rows, -1, static_cast<int32_t>(s.cols)),
             .logits = e->Random(s.type, s.rows, s.cols),
             .losses = e->RandomDense(kFp32, 1, s.rows),
             .log_sum_exp = e->RandomDense(kFp32, 1, s.rows)};
       }},
      {"cross_entropy_backward",
       [](S s, Example* e) -> Call {
         const View logits = e->Random(s.type, s.rows, s.cols);
         return cuda::CrossEntropyBackward{
             .targets = e->Integers(s.rows, -1, static_cast<int32_t>(s.cols)),
             .log_sum_exp = LogSumExp(logits, e),
             .scale = 0.25f,
             .logits = logits};
       }},
  };
}

const std::map<std::string, Maker>& Makers() {
  static const auto* const makers = [] {
    auto* const all = new std::map<std::string, Maker>(ElementwiseMakers());
    all->merge(SumMakers());
    all->merge(RowMakers());
    return all;
  }();
  return *makers;
}

// Calls f with a pointer to each element, row by row.
template <typename T, typename F>
void EachElement(const View& view, const F& f) {
  for (int64_t i = 0; i < view.rows; ++i) {
    for (int64_t j = 0; j < view.cols; ++j) {
      f(static_cast<T*>(view.data) + i * view.stride + j);
    }
  }
}

}  // namespace

std::string ToString(const ExampleShape& shape) {
  const char* const type = shape.type == ElementType::kFloat32    ? "fp32"
                           : shape.type == ElementType::kBFloat16 ? "bf16"
                                                                  : "fp8";
  return std::string(type) + "_" + std::to_string(shape.rows) + "x" + std::to_string(shape.cols) +
         "_gap" + std::to_string(shape.gap);
}

Doubles ValuesOf(const View& view) {
  Doubles values;
  if (view.type == ElementType::kFloat64) {
    EachElement<double>(view, [&](const double* at) { values.push_back(*at); });
  } else if (view.type == ElementType::kInt32) {
    EachElement<int32_t>(view, [&](const int32_t* at) { values.push_back(*at); });
  } else {
    cuda::WithAnyFloat(view.type, [&](auto element) {
      EachElement<decltype(element)>(
          view, [&](const auto* at) { values.push_back(static_cast<double>(cuda::ToFloat(*at))); });
    });
  }
  return values;
}

void SetValues(const View& view, const Doubles& values) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(values.size()) == view.size(), "as many as there are");
  size_t next = 0;
  if (view.type == ElementType::kFloat64) {
    EachElement<double>(view, [&](double* at) { *at = values[next++]; });
  } else if (view.type == ElementType::kInt32) {
    EachElement<int32_t>(view, [&](int32_t* at) { *at = static_cast<int32_t>(values[next++]); });
  } else {
    cuda::WithAnyFloat(view.type, [&](auto element) {
      using T = decltype(element);
      EachElement<T>(view,
                     [&](T* at) { *at = cuda::FromFloat<T>(static_cast<float>(values[next++])); });
    });
  }
}

Example::Example(std::string_view kind, const ExampleShape& shape, unsigned seed)
    : gap_(shape.gap), random_(seed) {
  const auto maker = Makers().find(std::string(kind));
  SPIRITLEVEL_CHECK(maker != Makers().end(), "there is an example of each kind");
  call_ = maker->second(shape, this);
  for (Buffer& buffer : buffers_) buffer.before.assign(buffer.data(), buffer.data() + buffer.bytes);
}

std::vector<std::string> Example::Kinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, maker] : Makers()) kinds.push_back(kind);
  return kinds;
}

View Example::view(std::string_view name) const {
  for (const cuda::NamedView& operand : ViewsOf(call_)) {
    if (operand.name == name) return *operand.view;
  }
  SPIRITLEVEL_CHECK(false, "the call has an operand of this name");
}

std::vector<std::string> Example::results() const {
  std::vector<std::string> names;
  for (const cuda::NamedView& operand : ViewsOf(call_)) {
    if (operand.written && operand.name != "workspace" && !operand.view->empty()) {
      names.emplace_back(operand.name);
    }
  }
  return names;
}

bool Example::OnlyResultsHaveChanged() const {
  for (const Buffer& buffer : buffers_) {
    std::vector<std::byte> after(buffer.data(), buffer.data() + buffer.bytes);
    for (const cuda::NamedView& operand : ViewsOf(call_)) {
      const View& view = *operand.view;
      const auto* const data = static_cast<const std::byte*>(view.data);
      if (!operand.written || data < buffer.data() || data >= buffer.data() + buffer.bytes) {
        continue;
      }
      const Bytes size = SizeOf(view.type);
      for (int64_t i = 0; i < view.rows; ++i) {
        const int64_t begin = data - buffer.data() + i * view.stride * size;
        std::copy_n(buffer.before.begin() + begin, view.cols * size, after.begin() + begin);
      }
    }
    if (after != buffer.before) return false;
  }
  return true;
}

bool Example::HasTheBitsOf(const Example& other) const {
  return std::equal(buffers_.begin(), buffers_.end(), other.buffers_.begin(), other.buffers_.end(),
                    [](const Buffer& a, const Buffer& b) {
                      return std::equal(a.data(), a.data() + a.bytes, b.data(), b.data() + b.bytes);
                    });
}

View Example::Make(ElementType type, int64_t rows, int64_t cols, int64_t gap) {
  const int64_t stride = rows > 1 ? cols + gap : cols;
  Buffer buffer;
  buffer.bytes = static_cast<size_t>(rows * stride * SizeOf(type));
  buffer.memory.resize(buffer.bytes / sizeof(std::max_align_t) + 1);
  std::memset(buffer.memory.data(), 0xA5, buffer.memory.size() * sizeof(std::max_align_t));
  buffers_.push_back(std::move(buffer));
  return View{buffers_.back().data(), type, rows, cols, stride};
}

View Example::Random(ElementType type, int64_t rows, int64_t cols) {
  const View view = Make(type, rows, cols, gap_);
  SetValues(view, RandomDoubles(static_cast<size_t>(view.size()), &random_));
  return view;
}

View Example::RandomDense(ElementType type, int64_t rows, int64_t cols) {
  const View view = Make(type, rows, cols, 0);
  SetValues(view, RandomDoubles(static_cast<size_t>(view.size()), &random_));
  return view;
}

View Example::Integers(int64_t count, int32_t least, int32_t end) {
  const View view = Make(ElementType::kInt32, 1, count, 0);
  std::uniform_int_distribution<int32_t> any(least, end - 1);
  Doubles values(static_cast<size_t>(count));
  for (double& value : values) value = any(random_);
  SetValues(view, values);
  return view;
}

}  // namespace spiritlevel
