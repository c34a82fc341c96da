#include "kernels/cuda/math/attention_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "kernels/cuda/math/attention_matrices.h"
#include "kernels/cuda/math/attention_softmax.h"

namespace spiritlevel::cuda {
namespace {

AttentionGeometry Geometry(int sequence, bool causal, int heads = 1, int kv_heads = 1) {
  return {.batch = 1,
          .sequence = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 8,
          .causal = causal,
          .scale = 1};
}

//          keys 0 1 2 3 | 4 5 6 7
// queries 0     x       |
//         1     x x     |            full, partial and skipped tiles of 2 by 4
//         ...
TEST(AttentionTiles, AreOfTheKindThatCountingTheirPairsSays) {
  for (const bool causal : {false, true}) {
    for (int sequence = 1; sequence <= 9; ++sequence) {
      const AttentionGeometry g = Geometry(sequence, causal);
      for (const int queries : {1, 2, 4}) {
        for (const int keys : {1, 3, 4}) {
          for (int query = 0; query < 12; query += queries) {
            for (int key = 0; key < 12; key += keys) {
              int seen = 0;
              for (int i = query; i < query + queries; ++i) {
                for (int j = key; j < key + keys; ++j) seen += Sees(g, i, j) ? 1 : 0;
              }
              const TileKind expected = seen == 0                ? TileKind::kSkipped
                                        : seen == queries * keys ? TileKind::kFull
                                                                 : TileKind::kPartial;
              EXPECT_EQ(KindOf(g, query, queries, key, keys), expected)
                  << "sequence " << sequence << (causal ? " causal" : " full") << ", " << queries
                  << " from " << query << ", " << keys << " from " << key;
            }
          }
        }
      }
    }
  }
}

TEST(AttentionTiles, WhatLoopsLeaveOutIsSkippedAndNothingElse) {
  for (const bool causal : {false, true}) {
    for (int sequence = 1; sequence <= 20; ++sequence) {
      const AttentionGeometry g = Geometry(sequence, causal);
      for (const int queries : {2, 3, 8}) {
        for (const int keys : {2, 3, 8}) {
          for (int query = 0; query < sequence; query += queries) {
            for (int key = 0; key < sequence; key += keys) {
              const bool seen = KindOf(g, query, queries, key, keys) != TileKind::kSkipped;
              EXPECT_EQ(key / keys < KeyTilesSeen(g, query, queries, keys), seen);
              EXPECT_EQ(query / queries >= FirstQueryTile(g, key, queries), seen);
            }
          }
        }
      }
    }
  }
}

TEST(AttentionTiles, EveryHeadsEveryTileIsSomeBlocksAndOneAlone) {
  const AttentionGeometry g = Geometry(100, true);
  std::set<std::tuple<int, int, int>> places;
  for (int64_t block = 0; block < 2 * 3 * 5; ++block) {
    const BlockPlace place = PlaceOf(block, 3, 5);
    EXPECT_LT(place.batch, 2);
    places.insert({place.batch, place.head, QueryTileOf(g, place.tile, 5)});
  }
  EXPECT_EQ(places.size(), 30u);
}

TEST(AttentionTiles, TheBlockWithTheMostKeysBegins) {
  const AttentionGeometry g = Geometry(64, true);
  for (int block = 1; block < 8; ++block) {
    EXPECT_LE(KeyTilesSeen(g, 8 * QueryTileOf(g, block, 8), 8, 8),
              KeyTilesSeen(g, 8 * QueryTileOf(g, block - 1, 8), 8, 8));
  }
}

TEST(AttentionTiles, ATileOfKeysMeetsEachQueryHeadOfItsGroupInOrder) {
  const AttentionGeometry g = Geometry(32, true, 6, 2);
  const QueryTurns turns{FirstQueryTile(g, 16, 8), TilesIn(32, 8)};
  ASSERT_EQ(turns.count(g), 6);  // 3 heads, tiles 2 and 3
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(turns.at(g, 1, i).head, 3 + i / 2);
    EXPECT_EQ(turns.at(g, 1, i).tile, 2 + i % 2);
    EXPECT_EQ(KeyHeadOf(g, turns.at(g, 1, i).head), 1);
  }
}

// Tile after tile is the softmax of all.
TEST(AttentionSoftmax, FoldedInTilesIsThatOfTheWholeRow) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> between(-40, 40);
  constexpr float kScale = 0.5f;
  for (int count = 1; count <= 12; ++count) {
    std::vector<float> scores;
    for (int i = 0; i < count; ++i) scores.push_back(between(random));
    SoftmaxRow row;
    double weighted = 0;
    for (int begin = 0; begin < count; begin += 3) {
      const int end = std::min(begin + 3, count);
      float largest = -Infinity();
      for (int i = begin; i < end; ++i) largest = std::max(largest, scores[static_cast<size_t>(i)]);
      weighted *= static_cast<double>(RaiseLargest(&row, largest, kScale * kLog2E));
      for (int i = begin; i < end; ++i) {
        const float weight = WeightOf(scores[static_cast<size_t>(i)], kScale * kLog2E,
                                      row.largest * kScale * kLog2E);
        row.sum += weight;
        weighted += static_cast<double>(weight) * i;
      }
    }
    double sum = 0;
    double expected = 0;
    for (int i = 0; i < count; ++i) {
      const double weight = std::exp(static_cast<double>(scores[static_cast<size_t>(i)] * kScale));
      sum += weight;
      expected += weight * i;
    }
    EXPECT_NEAR(weighted / static_cast<double>(row.sum), expected / sum, 1e-5 * count);
    EXPECT_NEAR(static_cast<double>(LogSumExpOf(row, kScale)), std::log(sum), 1e-5);
  }
}

TEST(AttentionSoftmax, MaskedScoresWeighNothingAndTheFirstTileShrinksNothingToNaN) {
  SoftmaxRow row;
  EXPECT_EQ(RaiseLargest(&row, -5, 1), 0);
  EXPECT_EQ(row.sum, 0);
  EXPECT_EQ(RaiseLargest(&row, -Infinity(), 1), 1);  // a tile of which this row sees nothing
  EXPECT_EQ(WeightOf(-Infinity(), 1, row.largest), 0);
  EXPECT_EQ(WeightOf(0, 1, Infinity()), 0);  // a query behind the end
}

// The gradient of a row's softmax, sum_j p_j g_j, by one of its scores.
TEST(AttentionSoftmax, ScoreGradientsAreThoseOfFiniteDifferences) {
  const double scores[3] = {0.3, -0.7, 1.1};
  const double gradients[3] = {0.5, 2, -1};
  const auto loss = [&](int moved, double by) {
    double sum = 0;
    double weighted = 0;
    for (int i = 0; i < 3; ++i) {
      const double weight = std::exp(scores[i] + (i == moved ? by : 0));
      sum += weight;
      weighted += weight * gradients[i];
    }
    return weighted / sum;
  };
  double sum = 0;
  for (const double score : scores) sum += std::exp(score);
  const auto delta = static_cast<float>(loss(0, 0));
  for (int i = 0; i < 3; ++i) {
    const auto weight = static_cast<float>(std::exp(scores[i]) / sum);
    EXPECT_NEAR(ScoreGradient(weight, static_cast<float>(gradients[i]), delta),
                (loss(i, 1e-4) - loss(i, -1e-4)) / 2e-4, 1e-6);
  }
}

template <int kCols>
void ExpectAPermutationWithoutConflicts() {
  constexpr SharedMatrix<32, kCols> kMatrix{1024};
  constexpr int kChunks = SharedMatrix<32, kCols>::kChunks;
  std::set<unsigned> all;
  for (int row = 0; row < 32; ++row) {
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const unsigned at = kMatrix.At(row, chunk);
      all.insert(at);
      EXPECT_EQ((at - 1024) / (kCols * 2), row) << "a chunk stays in its row";
      const auto walk = kMatrix.WalkFrom(row % 16, chunk % 2);
      EXPECT_EQ(walk.At(chunk / 2, row / 16), at) << "row " << row << ", chunk " << chunk;
    }
  }
  EXPECT_EQ(all.size(), size_t{32} * kChunks);
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    for (int row = 0; row < 32; row += 8) {
      std::set<unsigned> banks;
      for (int i = 0; i < 8; ++i) banks.insert(kMatrix.At(row + i, chunk) / kChunkBytes % 8);
      EXPECT_EQ(banks.size(), 8u) << kCols << " columns, chunk " << chunk << ", row " << row;
    }
  }
}

TEST(AttentionMatrices, EightRowsOfAChunkLieInEightGroupsOfBanks) {
  ExpectAPermutationWithoutConflicts<64>();
  ExpectAPermutationWithoutConflicts<80>();
  ExpectAPermutationWithoutConflicts<96>();
  ExpectAPermutationWithoutConflicts<128>();
  ExpectAPermutationWithoutConflicts<256>();
}

}  // namespace
}  // namespace spiritlevel::cuda
