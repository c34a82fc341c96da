// What this machine is made of, as far as spiritlevel cares; and what it can and cannot do with it.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel {

struct Machine {
  std::string processor;             // "AMD EPYC 7763"; empty where the system does not say
  int cores = 0;                     // that this process may use
  std::string instructions;          // the widest that this build uses: "AVX2"
  std::string missing_instructions;  // that it uses and the processor lacks; empty: none
  std::string blas;                  // in its own words
  Bytes l1 = 0;                      // data; 0: unknown
  Bytes l2 = 0;
  Bytes l3 = 0;
  Bytes memory = 0;  // that a run may take now
  bool has_mpi = false;
  std::string mpirun;  // where it is; empty: not on the path
};

Machine ReadMachine();

// One thing that can or cannot be done here.
struct Ability {
  std::string part;  // "CPU kernels"
  bool can = false;
  std::string what;    // what there is, or why it cannot be done
  std::string remedy;  // what to do about it; empty where there is nothing to do

  friend bool operator==(const Ability&, const Ability&) = default;
};

// `layer` is null in a build without the toolkit. An error of the layer is a finding as well.
std::vector<Ability> Examine(const Machine& machine, cuda::Layer* layer);

std::string AbilitiesTable(const std::vector<Ability>& findings);
std::string AbilitiesJson(const std::vector<Ability>& findings);

}  // namespace spiritlevel
