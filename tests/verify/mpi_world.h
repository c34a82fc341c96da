// GoogleTest in every process of an MPI job: all run the same tests, and the first one judges.
//
//   int main(int argc, char** argv) { return spiritlevel::RunTestsUnderMpi(&argc, argv); }
#pragma once

#include <gtest/gtest.h>

#include "verify/mpi_session.h"

namespace spiritlevel {

struct MpiWorld {
  int rank = 0;
  int size = 1;
};

inline MpiWorld& World() {
  static MpiWorld world;
  return world;
}

// Processes other than the first say only what they find wrong.
inline int RunTestsUnderMpi(int* argc, char** argv) {
  const MpiSession mpi;
  World() = {.rank = mpi.rank(), .size = mpi.size()};
  if (mpi.rank() != 0) GTEST_FLAG_SET(brief, true);
  testing::InitGoogleTest(argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace spiritlevel
