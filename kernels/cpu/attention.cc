#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/largest.h"

namespace spiritlevel::cpu {
namespace {

// Rows of queries and of keys that meet at a time. Larger tiles make longer products and waste more
// of them above the diagonal; 64 was faster than 96 and 128 for all sequences from 128 to 2048.
constexpr int64_t kTile = 64;

float Scale(const AttentionShape& shape) {
  return shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<float>(shape.head_dim));
}

void CheckShape(const AttentionShape& s, ConstMatrix q, ConstMatrix k, ConstMatrix v) {
  SPIRITLEVEL_CHECK(s.sequence > 0 && s.head_dim > 0 && s.kv_heads > 0, "attention has a shape");
  SPIRITLEVEL_CHECK(s.heads % s.kv_heads == 0, "each key head serves as many query heads");
  SPIRITLEVEL_CHECK(q.rows() == s.sequence && q.cols() == s.heads * s.head_dim, "Q fits");
  SPIRITLEVEL_CHECK(k.rows() == s.sequence && k.cols() == s.kv_heads * s.head_dim, "K fits");
  SPIRITLEVEL_CHECK(SameShape(k, v), "K and V are alike");
}

// One head's columns.
template <typename T>
BasicMatrix<T> Head(const BasicMatrix<T>& matrix, int64_t head, int64_t head_dim) {
  return matrix.Columns(head * head_dim, head_dim);
}

// Rows begin ... of a tile, the last one of a sequence being shorter.
template <typename T>
BasicMatrix<T> TileRows(const BasicMatrix<T>& matrix, int64_t begin) {
  return matrix.Rows(begin, std::min(kTile, matrix.rows() - begin));
}

void Zero(Matrix m) {
  for (int64_t i = 0; i < m.rows(); ++i) std::fill_n(m.row(i), m.cols(), 0.0f);
}

void ScaleRow(float factor, float* row, int64_t count) {
  for (int64_t j = 0; j < count; ++j) row[j] *= factor;
}

// Keys that query `row` of the tile sees, of the tile's `keys`; on the diagonal the first row + 1.
int64_t SeenKeys(bool on_diagonal, int64_t row, int64_t keys) {
  return on_diagonal ? std::min(row + 1, keys) : keys;
}

// scores[j] = exp(scores[j] - shift) for the seen keys, 0 for the rest. Returns the sum.
float Exponentiate(float* scores, int64_t seen, int64_t keys, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < seen; ++j) {
    scores[j] = Exponential(scores[j] - shift);
    sum += scores[j];
  }
  std::fill(scores + seen, scores + keys, 0.0f);
  return sum;
}

// What is known of each row of a tile of queries while the keys pass by.
struct Running {
  float largest[kTile];
  float sum[kTile];
};

// Turns scores into weights relative to the largest so far, and brings what was summed under an
// earlier largest to the new one.
void FoldScores(bool on_diagonal, Matrix scores, Running* running, Matrix out) {
  for (int64_t i = 0; i < scores.rows(); ++i) {
    float* const row = scores.row(i);
    const int64_t seen = SeenKeys(on_diagonal, i, scores.cols());
    const float before = running->largest[i];
    const float largest = std::max(before, Largest(row, seen));
    const float sum = Exponentiate(row, seen, scores.cols(), largest);
    if (largest != before) {
      // Of the first tile nothing is there to be brought along, and exp(-inf) is not 0 here.
      const float shrink =
          before == -std::numeric_limits<float>::infinity() ? 0 : Exponential(before - largest);
      running->sum[i] *= shrink;
      ScaleRow(shrink, out.row(i), out.cols());
    }
    running->largest[i] = largest;
    running->sum[i] += sum;
  }
}

void ForwardTile(const AttentionShape& shape, int64_t begin, ConstMatrix q, ConstMatrix k,
                 ConstMatrix v, Matrix out, float* log_sum_exp, float* workspace) {
  Running running;
  std::fill_n(running.largest, kTile, -std::numeric_limits<float>::infinity());
  std::fill_n(running.sum, kTile, 0.0f);
  Zero(out);
  const int64_t end = shape.causal ? begin + 1 : shape.sequence;
  for (int64_t at = 0; at < end; at += kTile) {
    const ConstMatrix keys = TileRows(k, at);
    const Matrix scores(workspace, q.rows(), keys.rows());
    Gemm(Scale(shape), q, Transpose::kNo, keys, Transpose::kYes, 0, scores);
    FoldScores(shape.causal && at == begin, scores, &running, out);
    Gemm(1, scores, Transpose::kNo, TileRows(v, at), Transpose::kNo, 1, out);
  }
  for (int64_t i = 0; i < out.rows(); ++i) {
    ScaleRow(1 / running.sum[i], out.row(i), out.cols());
    log_sum_exp[i] = running.largest[i] + std::log(running.sum[i]);
  }
}

// delta[i] = sum_j dout[i, j] out[i, j]
void RowDots(ConstMatrix dout, ConstMatrix out, float* delta) {
  for (int64_t i = 0; i < out.rows(); ++i) {
    const float* const a = dout.row(i);
    const float* const b = out.row(i);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < out.cols(); ++j) sum += a[j] * b[j];
    delta[i] = sum;
  }
}

// A tile of queries as B sees it.
struct QueryTile {
  ConstMatrix q;
  ConstMatrix dout;
  const float* log_sum_exp;
  const float* delta;
  Matrix dq;
};

// One tile of queries against one of keys: adds to dq, dk and dv.
void BackwardTile(const AttentionShape& shape, bool on_diagonal, const QueryTile& tile,
                  ConstMatrix keys, ConstMatrix values, Matrix dk, Matrix dv, float* workspace) {
  const int64_t rows = tile.q.rows();
  const int64_t cols = keys.rows();
  const Matrix p(workspace, rows, cols);
  const Matrix ds(workspace + kTile * kTile, rows, cols);
  Gemm(Scale(shape), tile.q, Transpose::kNo, keys, Transpose::kYes, 0, p);
  for (int64_t i = 0; i < rows; ++i) {
    Exponentiate(p.row(i), SeenKeys(on_diagonal, i, cols), cols, tile.log_sum_exp[i]);
  }
  Gemm(1, p, Transpose::kYes, tile.dout, Transpose::kNo, 1, dv);
  Gemm(1, tile.dout, Transpose::kNo, values, Transpose::kYes, 0, ds);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const weights = p.row(i);
    float* const grads = ds.row(i);
    const float delta = tile.delta[i];
    for (int64_t j = 0; j < cols; ++j) grads[j] = weights[j] * (grads[j] - delta);
  }
  Gemm(Scale(shape), ds, Transpose::kNo, keys, Transpose::kNo, 1, tile.dq);
  Gemm(Scale(shape), ds, Transpose::kYes, tile.q, Transpose::kNo, 1, dk);
}

}  // namespace

int64_t AttentionWorkspace(const AttentionShape& shape) {
  return 2 * kTile * kTile + shape.sequence;
}

void AttentionForward(const AttentionShape& shape, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                      Matrix out, std::span<float> log_sum_exp, std::span<float> workspace) {
  CheckShape(shape, q, k, v);
  SPIRITLEVEL_CHECK(SameShape(q, out), "the output is like Q");
  SPIRITLEVEL_CHECK(static_cast<int64_t>(log_sum_exp.size()) >= shape.heads * shape.sequence,
                    "there is a number for each row of each head");
  SPIRITLEVEL_CHECK(static_cast<int64_t>(workspace.size()) >= AttentionWorkspace(shape),
                    "the workspace is large enough");
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t head = 0; head < shape.heads; ++head) {
    const ConstMatrix queries = Head(q, head, shape.head_dim);
    const ConstMatrix keys = Head(k, head / group, shape.head_dim);
    const ConstMatrix values = Head(v, head / group, shape.head_dim);
    const Matrix outputs = Head(out, head, shape.head_dim);
    for (int64_t begin = 0; begin < shape.sequence; begin += kTile) {
      ForwardTile(shape, begin, TileRows(queries, begin), keys, values, TileRows(outputs, begin),
                  log_sum_exp.data() + head * shape.sequence + begin, workspace.data());
    }
  }
}

void AttentionBackward(const AttentionShape& shape, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                       ConstMatrix out, std::span<const float> log_sum_exp, ConstMatrix dout,
                       Matrix dq, Matrix dk, Matrix dv, std::span<float> workspace) {
  CheckShape(shape, q, k, v);
  SPIRITLEVEL_CHECK(SameShape(q, out) && SameShape(q, dout) && SameShape(q, dq), "all like Q");
  SPIRITLEVEL_CHECK(SameShape(k, dk) && SameShape(k, dv), "all like K");
  SPIRITLEVEL_CHECK(static_cast<int64_t>(log_sum_exp.size()) >= shape.heads * shape.sequence,
                    "there is a number for each row of each head");
  SPIRITLEVEL_CHECK(static_cast<int64_t>(workspace.size()) >= AttentionWorkspace(shape),
                    "the workspace is large enough");
  Zero(dq);
  Zero(dk);
  Zero(dv);
  const int64_t group = shape.heads / shape.kv_heads;
  float* const delta = workspace.data() + 2 * kTile * kTile;
  for (int64_t head = 0; head < shape.heads; ++head) {
    const ConstMatrix queries = Head(q, head, shape.head_dim);
    const ConstMatrix douts = Head(dout, head, shape.head_dim);
    const Matrix dqueries = Head(dq, head, shape.head_dim);
    const int64_t kv = head / group;
    RowDots(douts, Head(out, head, shape.head_dim), delta);
    for (int64_t at = 0; at < shape.sequence; at += kTile) {
      for (int64_t begin = shape.causal ? at : 0; begin < shape.sequence; begin += kTile) {
        const QueryTile tile{.q = TileRows(queries, begin),
                             .dout = TileRows(douts, begin),
                             .log_sum_exp = log_sum_exp.data() + head * shape.sequence + begin,
                             .delta = delta + begin,
                             .dq = TileRows(dqueries, begin)};
        BackwardTile(
            shape, shape.causal && at == begin, tile, TileRows(Head(k, kv, shape.head_dim), at),
            TileRows(Head(v, kv, shape.head_dim), at), TileRows(Head(dk, kv, shape.head_dim), at),
            TileRows(Head(dv, kv, shape.head_dim), at), workspace.data());
      }
    }
  }
}

}  // namespace spiritlevel::cpu
