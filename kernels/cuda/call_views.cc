#include "kernels/cuda/call_views.h"

namespace spiritlevel::cuda {
namespace {

struct Views {
  std::vector<NamedView> operator()(const Product& call) const {
    return {{"a", &call.a}, {"b", &call.b}, {"c", &call.c, true}};
  }
  std::vector<NamedView> operator()(const Fill& call) const { return {{"to", &call.to, true}}; }
  std::vector<NamedView> operator()(const Convert& call) const {
    return {{"from", &call.from}, {"to", &call.to, true}};
  }
  std::vector<NamedView> operator()(const Add& call) const {
    return {{"a", &call.a}, {"b", &call.b}, {"to", &call.to, true}};
  }
  std::vector<NamedView> operator()(const AddBias& call) const {
    return {{"bias", &call.bias}, {"x", &call.x, true}};
  }
  std::vector<NamedView> operator()(const ColumnSums& call) const {
    return {{"x", &call.x}, {"sums", &call.sums, true}, {"workspace", &call.workspace, true}};
  }
  std::vector<NamedView> operator()(const SumOfSquares& call) const {
    return {{"x", &call.x}, {"sum", &call.sum, true}, {"workspace", &call.workspace, true}};
  }
  std::vector<NamedView> operator()(const SwigluForward& call) const {
    return {{"gate", &call.gate}, {"up", &call.up}, {"y", &call.y, true}};
  }
  std::vector<NamedView> operator()(const SwigluBackward& call) const {
    return {{"gate", &call.gate},
            {"up", &call.up},
            {"dy", &call.dy},
            {"dgate", &call.dgate, true},
            {"dup", &call.dup, true}};
  }
  std::vector<NamedView> operator()(const GeluForward& call) const {
    return {{"x", &call.x}, {"y", &call.y, true}};
  }
  std::vector<NamedView> operator()(const GeluBackward& call) const {
    return {{"x", &call.x}, {"dy", &call.dy}, {"dx", &call.dx, true}};
  }
  std::vector<NamedView> operator()(const Rotate& call) const {
    return {{"table", &call.table}, {"x", &call.x, true}};
  }
  std::vector<NamedView> operator()(const Dropout& call) const { return {{"x", &call.x, true}}; }
  std::vector<NamedView> operator()(const RmsNormForward& call) const {
    return {{"x", &call.x},
            {"weight", &call.weight},
            {"y", &call.y, true},
            {"statistics", &call.statistics, true}};
  }
  std::vector<NamedView> operator()(const RmsNormInputGrad& call) const {
    return {{"x", &call.x},
            {"weight", &call.weight},
            {"statistics", &call.statistics},
            {"dy", &call.dy},
            {"dx", &call.dx, true}};
  }
  std::vector<NamedView> operator()(const RmsNormWeightGrad& call) const {
    return {{"x", &call.x},
            {"statistics", &call.statistics},
            {"dy", &call.dy},
            {"dweight", &call.dweight, true},
            {"workspace", &call.workspace, true}};
  }
  std::vector<NamedView> operator()(const LayerNormForward& call) const {
    return {{"x", &call.x},
            {"weight", &call.weight},
            {"bias", &call.bias},
            {"y", &call.y, true},
            {"statistics", &call.statistics, true}};
  }
  std::vector<NamedView> operator()(const LayerNormInputGrad& call) const {
    return {{"x", &call.x},
            {"weight", &call.weight},
            {"statistics", &call.statistics},
            {"dy", &call.dy},
            {"dx", &call.dx, true}};
  }
  std::vector<NamedView> operator()(const LayerNormWeightGrad& call) const {
    return {{"x", &call.x},
            {"statistics", &call.statistics},
            {"dy", &call.dy},
            {"dweight", &call.dweight, true},
            {"dbias", &call.dbias, true},
            {"workspace", &call.workspace, true}};
  }
  std::vector<NamedView> operator()(const EmbeddingForward& call) const {
    return {{"tokens", &call.tokens}, {"table", &call.table}, {"x", &call.x, true}};
  }
  std::vector<NamedView> operator()(const EmbeddingWeightGrad& call) const {
    return {{"tokens", &call.tokens}, {"dx", &call.dx}, {"dtable", &call.dtable, true}};
  }
  std::vector<NamedView> operator()(const CrossEntropyForward& call) const {
    return {{"targets", &call.targets},
            {"logits", &call.logits},
            {"losses", &call.losses, true},
            {"log_sum_exp", &call.log_sum_exp, true}};
  }
  std::vector<NamedView> operator()(const CrossEntropyBackward& call) const {
    return {{"targets", &call.targets},
            {"log_sum_exp", &call.log_sum_exp},
            {"logits", &call.logits, true}};
  }
  std::vector<NamedView> operator()(const AttentionForward& call) const {
    return {{"q", &call.q},
            {"k", &call.k},
            {"v", &call.v},
            {"out", &call.out, true},
            {"log_sum_exp", &call.log_sum_exp, true}};
  }
  std::vector<NamedView> operator()(const AttentionBackward& call) const {
    return {{"q", &call.q},
            {"k", &call.k},
            {"v", &call.v},
            {"out", &call.out},
            {"log_sum_exp", &call.log_sum_exp},
            {"dout", &call.dout},
            {"dq", &call.dq, true},
            {"dk", &call.dk, true},
            {"dv", &call.dv, true},
            {"workspace", &call.workspace, true}};
  }
  std::vector<NamedView> operator()(const AdamWStep& call) const {
    return {{"gradient", &call.gradient},
            {"exact", &call.exact, true},
            {"first_moment", &call.first_moment, true},
            {"second_moment", &call.second_moment, true},
            {"stored", &call.stored, true}};
  }
  std::vector<NamedView> operator()(const AdamWUndo& call) const { return (*this)(call.step); }
};

}  // namespace

std::vector<NamedView> ViewsOf(const Call& call) { return std::visit(Views(), call); }

}  // namespace spiritlevel::cuda
