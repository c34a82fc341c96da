// tests/data/search_optima.txt: tiny problems and their least span.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/problem.h"

namespace spiritlevel {

struct TinyOptimum {
  std::string line;  // of the file
  Costs costs;
  std::vector<Bytes> limits;
  TimeNs span = 0;

  SearchProblem problem() const {
    return {.placement = {.form = PlacementForm::kLinear, .ranks = costs.num_stages()},
            .costs = &costs,
            .limits = limits,
            .objective = Objective::kSpan};
  }
};

inline TinyOptimum ParseTinyOptimum(const std::string& line) {
  std::istringstream in(line);
  const auto read = [&] {
    int64_t number = 0;
    in >> number;
    return number;
  };
  const auto skip_bar = [&] {
    char bar = 0;
    in >> bar;
    if (bar != '|') throw std::runtime_error("search_optima.txt: a | is missing: " + line);
  };
  const auto ranks = static_cast<int>(read());
  const auto micro_batches = static_cast<int>(read());
  const TimeNs latency = read();
  skip_bar();
  std::vector<Bytes> limits;
  for (int r = 0; r < ranks; ++r) limits.push_back(read());
  skip_bar();
  std::vector<int64_t> times;
  for (int i = 0; i < micro_batches; ++i) times.push_back(read());
  std::vector<StageCost> table;
  for (int r = 0; r < ranks; ++r) {
    skip_bar();
    const TimeNs f = read();
    const TimeNs b = read();
    const TimeNs w = read();
    const TimeNs bw = read();
    const Bytes activation = read();
    const Bytes weight_state = read();
    for (const int64_t k : times) {
      table.push_back({.forward = k * f,
                       .input_grad = k * b,
                       .weight_grad = k * w,
                       .fused_backward = k * bw,
                       .overlapped = k * (f + bw),
                       .activation = activation,
                       .weight_state = weight_state});
    }
  }
  skip_bar();
  const TimeNs span = read();
  if (!in) throw std::runtime_error("search_optima.txt: a number is missing: " + line);
  // All alike: the table says so.
  const bool alike = std::all_of(times.begin(), times.end(), [](int64_t k) { return k == 1; });
  if (alike) {
    std::vector<StageCost> by_stage;
    for (int r = 0; r < ranks; ++r) {
      by_stage.push_back(table[static_cast<size_t>(r) * static_cast<size_t>(micro_batches)]);
    }
    table = std::move(by_stage);
  }
  return {.line = line,
          .costs = Costs(ranks, micro_batches, std::move(table), {.hop = {.latency = latency}}),
          .limits = std::move(limits),
          .span = span};
}

// Every line that is not a comment.
inline std::vector<TinyOptimum> ReadTinyOptima(const std::string& path) {
  std::ifstream in(path);
  std::vector<TinyOptimum> optima;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') optima.push_back(ParseTinyOptimum(line));
  }
  return optima;
}

}  // namespace spiritlevel
