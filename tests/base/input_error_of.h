// What the user reads when `run` fails.
#pragma once

#include <string>

#include "base/check.h"

namespace spiritlevel {

// Empty when it does not fail, so that an expectation on the message fails too.
template <class Run>
std::string InputErrorOf(Run&& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace spiritlevel
