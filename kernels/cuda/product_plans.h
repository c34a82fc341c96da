// ProductPlans: which of a library's algorithms computes a product, asked once per kind of product.
//
//   ProductPlans plans(layer, device, {.workspace = Bytes{32} << 20});
//   layer->Multiply(stream, product, plans.For(product), workspace);
//
// Two products are of one kind if shapes, strides, types, transposes, alignments, use of what C
// held and of scales are the same; where they point to is not looked at. So the same training step
// takes the same algorithms in each iteration, and its sums have the same bits.
//
// One thread at a time, as with a layer's streams.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

struct ProductPlanSettings {
  Bytes workspace = Bytes{32} << 20;  // the most that an algorithm may need
  int candidates = 8;                 // that are asked for, and timed by Tune()
  int timed_runs = 5;                 // of each candidate; the median counts
};

// An algorithm and how it was chosen.
struct ProductPlan {
  ProductAlgorithm algorithm;
  int candidates = 0;       // that there were
  int chosen = 0;           // its place in the library's own order
  TimeNs median = 0;        // by Tune(); 0: was not timed
  TimeNs first_median = 0;  // of the library's own first choice
};

class ProductPlans {
 public:
  ProductPlans(Layer* layer, int device, ProductPlanSettings settings);

  // The library's first choice, or what Tune() found. Throws GpuError (kUnsupported) where there is
  // none that needs no more than the workspace.
  const ProductAlgorithm& For(const Product& product);
  const ProductPlan& PlanFor(const Product& product);

  // Times the candidates on `stream` and keeps the quickest; of equal ones the library's earlier.
  // C is overwritten, and with beta added to, many times: have the operands be of no further use.
  // Does nothing for a kind that was tuned before. `workspace` has settings().workspace bytes.
  const ProductPlan& Tune(const Product& product, Stream stream, void* workspace);

  const ProductPlanSettings& settings() const { return settings_; }
  int size() const { return static_cast<int>(plans_.size()); }
  int questions() const { return questions_; }  // that the library was asked

 private:
  // Everything that an algorithm's being right and quick may depend on.
  using Key = std::array<int64_t, 20>;
  struct Entry {
    std::vector<ProductAlgorithm> candidates;
    ProductPlan plan;
    bool tuned = false;
  };

  Key KeyOf(const Product& product) const;
  Entry& Find(const Product& product);
  TimeNs Time(const Product& product, const ProductAlgorithm& algorithm, Stream stream,
              void* workspace, Event begin, Event end);

  Layer* layer_;
  int device_;
  ProductPlanSettings settings_;
  int64_t architecture_;
  std::map<Key, Entry> plans_;
  int questions_ = 0;
};

// The power of two, at most 256, that an address is a multiple of.
int64_t AlignmentOf(const void* memory);

}  // namespace spiritlevel::cuda
