// The operands of a call, by name.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/cuda/calls.h"

namespace spiritlevel::cuda {

struct NamedView {
  std::string_view name;
  const View* view;      // of the call
  bool written = false;  // read as well, or not
};

// In the order of the call's fields; those that are left out are empty.
std::vector<NamedView> ViewsOf(const Call& call);

}  // namespace spiritlevel::cuda
