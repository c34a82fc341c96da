// How many parameters a model has, in all and tensor by tensor; exact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/architecture.h"

namespace spiritlevel {

struct TensorCount {
  std::string name;  // "q projection"
  int64_t parameters = 0;

  friend bool operator==(const TensorCount&, const TensorCount&) = default;
};

struct ParameterCount {
  int64_t layers = 0;
  int64_t embedding = 0;           // vocabulary * hidden
  int64_t positions = 0;           // learned ones
  std::vector<TensorCount> layer;  // of one layer; all are alike
  int64_t final_norm = 0;
  int64_t head = 0;  // of its own: 0 where it is the embedding

  int64_t per_layer() const;
  int64_t total() const;

  friend bool operator==(const ParameterCount&, const ParameterCount&) = default;
};

ParameterCount CountParameters(const Architecture& architecture);

}  // namespace spiritlevel
