// An integer program as data, so that what is solved does not depend on who solves it.
#pragma once

#include <limits>
#include <optional>
#include <vector>

namespace spiritlevel {

struct IntegerProgram {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  struct Column {
    double lower = 0;
    double upper = kInfinity;
    bool integer = false;
  };
  struct Term {
    int column = 0;
    double factor = 0;
  };
  struct Row {  // sum of terms >= at_least
    std::vector<Term> terms;
    double at_least = 0;
  };

  int AddColumn(const Column& column) {
    columns.push_back(column);
    return static_cast<int>(columns.size()) - 1;
  }

  std::vector<Column> columns;
  std::vector<Row> rows;
  int objective = 0;  // the column that is minimised
};

struct ProgramAnswer {
  std::optional<double> bound;                  // the objective cannot be less
  std::optional<std::vector<double>> solution;  // by column
};

// `start` is a solution. Deterministic but for where the time ends it.
ProgramAnswer SolveWithCbc(const IntegerProgram& program, const std::vector<double>& start,
                           double seconds);

}  // namespace spiritlevel
