#include "base/available_memory.h"
#include "tests/sanitized.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace spiritlevel {
namespace {

TEST(AvailableMemory, IsSomethingAndNotMoreThanAnyMachineHas) {
  EXPECT_GT(AvailableMemory(), Bytes{16} << 20);
  EXPECT_LT(AvailableMemory(), Bytes{1} << 50);
}

TEST(AvailableMemory, IsNeverAboveTheAddressSpaceAllowed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = 123'456'789, .rlim_max = RLIM_INFINITY};
    const bool set = ::setrlimit(RLIMIT_AS, &limit) == 0;
    ::_exit(set && AvailableMemory() <= 123'456'789 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (kAddressSanitized) GTEST_SKIP() << "its shadow is larger than any such limit";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace spiritlevel
