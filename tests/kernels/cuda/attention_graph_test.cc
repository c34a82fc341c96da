// Attention's graphs, computed node by node in float64 from what a call's memory holds.
#include "kernels/cuda/attention_graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cuda/math/numbers.h"
#include "tests/kernels/cuda/attention_problem.h"

namespace spiritlevel::cuda {
namespace {

int64_t SizeOf(const GraphTensor& t) { return t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]; }

// The graph's meaning, in the simplest words: every tensor is an array [dims], whatever its
// strides; those are of memory alone.
class Interpreter {
 public:
  explicit Interpreter(const AttentionGraph& graph) : graph_(graph) {
    for (const GraphTensor& tensor : graph.tensors) {
      values_.emplace_back(static_cast<size_t>(SizeOf(tensor)), static_cast<double>(tensor.value));
    }
  }

  template <typename CallOf>
  void Run(const CallOf& call) {
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      void* const data = DataOf(call, graph_.tensors[i].role);
      if (data != nullptr) Read(graph_.tensors[i], data, &values_[i]);
    }
    for (const GraphNode& node : graph_.nodes) {
      Compute(node);
      const auto output = static_cast<size_t>(node.output);
      void* const data = DataOf(call, graph_.tensors[output].role);
      if (data != nullptr) Write(graph_.tensors[output], values_[output], data);
    }
  }

 private:
  struct Index {
    int64_t at[4];
  };

  template <typename F>
  static void Each(const GraphTensor& t, const F& f) {
    Index i{};
    int64_t place = 0;
    for (i.at[0] = 0; i.at[0] < t.dims[0]; ++i.at[0]) {
      for (i.at[1] = 0; i.at[1] < t.dims[1]; ++i.at[1]) {
        for (i.at[2] = 0; i.at[2] < t.dims[2]; ++i.at[2]) {
          for (i.at[3] = 0; i.at[3] < t.dims[3]; ++i.at[3]) f(i, place++);
        }
      }
    }
  }
  static int64_t Offset(const GraphTensor& t, const Index& i) {
    int64_t offset = 0;
    for (int d = 0; d < 4; ++d) offset += i.at[d] * t.strides[d];
    return offset;
  }
  static void Read(const GraphTensor& t, const void* data, Doubles* to) {
    Each(t, [&](const Index& i, int64_t place) {
      const int64_t at = Offset(t, i);
      (*to)[static_cast<size_t>(place)] = static_cast<double>(
          t.type == GraphType::kBFloat16 ? ToFloat(static_cast<const BFloat16*>(data)[at])
                                         : static_cast<const float*>(data)[at]);
    });
  }
  static void Write(const GraphTensor& t, const Doubles& from, void* data) {
    Each(t, [&](const Index& i, int64_t place) {
      const auto value = static_cast<float>(from[static_cast<size_t>(place)]);
      const int64_t at = Offset(t, i);
      if (t.type == GraphType::kBFloat16) {
        static_cast<BFloat16*>(data)[at] = FromFloat<BFloat16>(value);
      } else {
        static_cast<float*>(data)[at] = value;
      }
    });
  }

  // Dimensions of 1 are repeated, and fewer heads serve several.
  double ValueAt(int tensor, Index i, const GraphTensor& of) const {
    const GraphTensor& t = graph_.tensors[static_cast<size_t>(tensor)];
    int64_t place = 0;
    for (int d = 0; d < 4; ++d) {
      int64_t at = t.dims[d] == 1 ? 0 : i.at[d];
      if (d == 1 && t.dims[d] != of.dims[d]) at = at * t.dims[d] / of.dims[d];
      place = place * t.dims[d] + at;
    }
    return values_[static_cast<size_t>(tensor)][static_cast<size_t>(place)];
  }

  void Compute(const GraphNode& node) {
    const GraphTensor& out = graph_.tensors[static_cast<size_t>(node.output)];
    Doubles result(static_cast<size_t>(SizeOf(out)));
    if (node.operation == GraphOperation::kSum || node.operation == GraphOperation::kLargest) {
      Reduce(node, out, &result);
    } else {
      Each(out, [&](const Index& i, int64_t place) {
        result[static_cast<size_t>(place)] = One(node, i, out);
      });
    }
    values_[static_cast<size_t>(node.output)] = result;
  }

  double One(const GraphNode& node, const Index& i, const GraphTensor& out) const {
    const auto in = [&](size_t n) { return ValueAt(node.inputs[n], i, out); };
    switch (node.operation) {
      case GraphOperation::kMultiplyMatrices: {
        double sum = 0;
        const int64_t depth = graph_.tensors[static_cast<size_t>(node.inputs[0])].dims[3];
        for (int64_t k = 0; k < depth; ++k) {
          sum += ValueAt(node.inputs[0], {{i.at[0], i.at[1], i.at[2], k}}, out) *
                 ValueAt(node.inputs[1], {{i.at[0], i.at[1], k, i.at[3]}}, out);
        }
        return sum;
      }
      case GraphOperation::kTranspose:
        return ValueAt(node.inputs[0], {{i.at[0], i.at[1], i.at[3], i.at[2]}}, out);
      case GraphOperation::kAdd:
        return in(0) + in(1);
      case GraphOperation::kSubtract:
        return in(0) - in(1);
      case GraphOperation::kMultiply:
        return in(0) * in(1);
      case GraphOperation::kDivide:
        return in(0) / in(1);
      case GraphOperation::kExp:
        return std::exp(in(0));
      case GraphOperation::kLog:
        return std::log(in(0));
      case GraphOperation::kRowIndex:
        return static_cast<double>(i.at[2]);
      case GraphOperation::kColIndex:
        return static_cast<double>(i.at[3]);
      case GraphOperation::kGreaterOrEqual:
        return in(0) >= in(1) ? 1 : 0;
      case GraphOperation::kSelect:
        return in(2) != 0 ? in(0) : in(1);
      default:
        return NAN;
    }
  }

  void Reduce(const GraphNode& node, const GraphTensor& out, Doubles* result) const {
    const bool is_sum = node.operation == GraphOperation::kSum;
    result->assign(result->size(), is_sum ? 0 : -HUGE_VAL);
    const GraphTensor& from = graph_.tensors[static_cast<size_t>(node.inputs[0])];
    Each(from, [&](const Index& i, int64_t place) {
      int64_t to = 0;
      for (int d = 0; d < 4; ++d) to = to * out.dims[d] + i.at[d] * out.dims[d] / from.dims[d];
      const double value = values_[static_cast<size_t>(node.inputs[0])][static_cast<size_t>(place)];
      double& sum = (*result)[static_cast<size_t>(to)];
      sum = is_sum ? sum + value : std::max(sum, value);
    });
  }

  const AttentionGraph& graph_;
  std::vector<Doubles> values_;
};

TEST(AttentionGraphs, MeanTheTextbooksAttention) {
  for (const bool causal : {true, false}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      const AttentionCase c{.shape = {2, 13, 4, kv_heads, 8, causal},
                            .type = ElementType::kBFloat16};
      AttentionProblem problem(c);
      const AttentionGraph forward = GraphOf(problem.Forward());
      Interpreter(forward).Run(problem.Forward());
      const AttentionGraph backward = GraphOf(problem.Backward());
      Interpreter(backward).Run(problem.Backward());
      EXPECT_LT(WorstError(problem.Results(), problem.InFloat64()), 1e-2) << NameOf(c);
      EXPECT_TRUE(problem.OnlyResultsAreWritten());
    }
  }
}

TEST(AttentionGraphs, ReadNothingBeforeItIsMade) {
  AttentionProblem problem({.shape = {1, 4, 2, 1, 8, true}, .type = ElementType::kBFloat16});
  for (const AttentionGraph& graph : {GraphOf(problem.Forward()), GraphOf(problem.Backward())}) {
    std::vector<bool> made(graph.tensors.size());
    for (const GraphNode& node : graph.nodes) {
      for (const int input : node.inputs) {
        const bool is_there = made[static_cast<size_t>(input)] ||
                              !graph.tensors[static_cast<size_t>(input)].is_virtual();
        EXPECT_TRUE(is_there) << "tensor " << input;
      }
      EXPECT_FALSE(made[static_cast<size_t>(node.output)]) << "tensor " << node.output;
      made[static_cast<size_t>(node.output)] = true;
    }
  }
}

TEST(AttentionGraphs, AreEqualWhereOnePlanServesBothCalls) {
  const AttentionCase c{.shape = {1, 8, 2, 1, 8, true}, .type = ElementType::kBFloat16};
  AttentionProblem one(c);
  AttentionProblem other(c);
  EXPECT_EQ(GraphOf(one.Forward()), GraphOf(other.Forward()));
  EXPECT_EQ(GraphOf(one.Backward()), GraphOf(other.Backward()));
  std::vector<AttentionCase> others(4, c);
  others[0].shape.causal = false;
  others[1].shape.scale = 0.5f;
  others[2].gap = 16;  // strides
  others[3].shape.sequence = 9;
  for (const AttentionCase& changed : others) {
    AttentionProblem unlike(changed);
    EXPECT_NE(GraphOf(one.Forward()), GraphOf(unlike.Forward())) << NameOf(changed);
    EXPECT_NE(GraphOf(one.Backward()), GraphOf(unlike.Backward())) << NameOf(changed);
  }
}

}  // namespace
}  // namespace spiritlevel::cuda
