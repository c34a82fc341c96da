// The only file that knows CBC. Without it, asking is the user's error.
#include <memory>
#include <string>

#include "base/check.h"
#include "sim/search/exact.h"
#include "sim/search/exact_program.h"

#ifdef SPIRITLEVEL_HAVE_CBC

#include <Cbc_C_Interface.h>
#include <fmt/core.h>

namespace spiritlevel {
namespace {

struct Deleter {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};
using Model = std::unique_ptr<Cbc_Model, Deleter>;

Model Load(const IntegerProgram& program) {
  Model model(Cbc_newModel());
  Cbc_setLogLevel(model.get(), 0);
  for (size_t i = 0; i < program.columns.size(); ++i) {
    const IntegerProgram::Column& c = program.columns[i];
    const std::string name = fmt::format("x{}", i);
    const double cost = static_cast<int>(i) == program.objective ? 1 : 0;
    Cbc_addCol(model.get(), name.c_str(), c.lower, c.upper, cost, c.integer ? 1 : 0, 0, nullptr,
               nullptr);
  }
  std::vector<int> columns;
  std::vector<double> factors;
  for (size_t i = 0; i < program.rows.size(); ++i) {
    columns.clear();
    factors.clear();
    for (const IntegerProgram::Term& term : program.rows[i].terms) {
      columns.push_back(term.column);
      factors.push_back(term.factor);
    }
    const std::string name = fmt::format("r{}", i);
    Cbc_addRow(model.get(), name.c_str(), static_cast<int>(columns.size()), columns.data(),
               factors.data(), 'G', program.rows[i].at_least);
  }
  return model;
}

}  // namespace

bool ExactIsAvailable() { return true; }

ProgramAnswer SolveWithCbc(const IntegerProgram& program, const std::vector<double>& start,
                           double seconds) {
  const Model model = Load(program);
  Cbc_setParameter(model.get(), "timeMode", "elapsed");
  Cbc_setMaximumSeconds(model.get(), seconds);
  std::vector<int> columns;
  for (size_t i = 0; i < start.size(); ++i) columns.push_back(static_cast<int>(i));
  Cbc_setMIPStartI(model.get(), static_cast<int>(start.size()), columns.data(), start.data());
  Cbc_solve(model.get());
  ProgramAnswer answer;
  if (Cbc_isProvenInfeasible(model.get()) != 0 || Cbc_isAbandoned(model.get()) != 0) return answer;
  answer.bound = Cbc_isProvenOptimal(model.get()) != 0 ? Cbc_getObjValue(model.get())
                                                       : Cbc_getBestPossibleObjValue(model.get());
  if (const double* best = Cbc_bestSolution(model.get()); best != nullptr) {
    answer.solution.emplace(best, best + program.columns.size());
  }
  return answer;
}

}  // namespace spiritlevel

#else

namespace spiritlevel {

bool ExactIsAvailable() { return false; }

ProgramAnswer SolveWithCbc(const IntegerProgram&, const std::vector<double>&, double) {
  throw InputError("the exact search needs CBC, which this program was built without",
                   "install coinor-libcbc-dev and build again, or search without proof");
}

}  // namespace spiritlevel

#endif
