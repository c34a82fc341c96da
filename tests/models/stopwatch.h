// How long bad input is looked at before it is refused.
#pragma once

#include <ctime>

namespace spiritlevel {

// Of this process's own time, so that a busy machine does not fail a test.
class Stopwatch {
 public:
  double Seconds() const {
    return static_cast<double>(std::clock() - begin_) / static_cast<double>(CLOCKS_PER_SEC);
  }

 private:
  std::clock_t begin_ = std::clock();
};

}  // namespace spiritlevel
