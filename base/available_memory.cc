#include "base/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace spiritlevel {
namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

std::optional<Bytes> ReadNumber(const char* path) {
  std::ifstream file(path);
  Bytes value = 0;
  if (!(file >> value)) return {};  // "max", or no such file
  return value;
}

Bytes OfSystem() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  Bytes kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnlimited;
}

Bytes OfControlGroup() {
  const std::optional<Bytes> limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const std::optional<Bytes> used = ReadNumber("/sys/fs/cgroup/memory.current");
  return limit && used ? std::max<Bytes>(0, *limit - *used) : kUnlimited;
}

// Of the process, in use already.
Bytes AddressSpace() {
  const std::optional<Bytes> pages = ReadNumber("/proc/self/statm");
  return pages ? *pages * ::sysconf(_SC_PAGESIZE) : 0;
}

Bytes OfAddressSpace() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const auto all =
      static_cast<Bytes>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kUnlimited)));
  return std::max<Bytes>(0, all - AddressSpace());
}

}  // namespace

Bytes AvailableMemory() { return std::min({OfSystem(), OfControlGroup(), OfAddressSpace()}); }

}  // namespace spiritlevel
