#include "calibrate/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cores.h"

namespace spiritlevel {
namespace {

// The system's files about itself; empty where there is none.
std::string ReadOrEmpty(const std::string& path) {
  try {
    std::string text = ReadFile(path, size_t{8} << 20);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
  } catch (const InputError&) {
    return "";
  }
}

std::string CpuModel() {
  const std::string text = ReadOrEmpty("/proc/cpuinfo");
  const size_t name = text.find("model name");
  const size_t colon = name == std::string::npos ? name : text.find(": ", name);
  if (colon == std::string::npos) return "unknown";
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

// "1024K" is 1 MiB.
Bytes ParseCacheSize(std::string_view text) {
  Bytes size = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || size < 0 || size > kMaxBytes >> 20) return 0;
  const std::string_view unit = text.substr(static_cast<size_t>(rest - text.data()));
  if (unit == "K") return size << 10;
  return unit == "M" ? size << 20 : size;
}

std::vector<Cache> Caches(const std::string& core) {
  std::vector<Cache> caches;
  for (int i = 0; i < 16; ++i) {
    const std::string folder = fmt::format("{}/cache/index{}/", core, i);
    const Bytes bytes = ParseCacheSize(ReadOrEmpty(folder + "size"));
    if (bytes == 0) break;
    const std::string level = ReadOrEmpty(folder + "level");
    caches.push_back({.level = level.size() == 1 ? level[0] - '0' : 0,
                      .type = ReadOrEmpty(folder + "type"),
                      .bytes = bytes});
  }
  return caches;
}

}  // namespace

MeasuredMachine DescribeMachine() {
  const std::vector<int> usable = cpu::UsableCores();
  const std::string core = fmt::format("/sys/devices/system/cpu/cpu{}", usable.front());
  MeasuredMachine machine;
  machine.cpu = CpuModel();
  machine.usable_cores = static_cast<int>(usable.size());
  machine.cores =
      std::max(machine.usable_cores, static_cast<int>(std::thread::hardware_concurrency()));
  machine.caches = Caches(core);
  machine.governor = ReadOrEmpty(core + "/cpufreq/scaling_governor");
  return machine;
}

Software DescribeSoftware() {
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#elif defined(__GNUC__)
  const std::string compiler = fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#else
  const std::string compiler = "unknown";
#endif
  return {.blas = cpu::BlasDescription(),
          .compiler = compiler,
          .instructions = cpu::CompiledInstructions()};
}

std::string Today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

Bytes LargestCache(const MeasuredMachine& machine) {
  Bytes largest = 0;
  for (const Cache& cache : machine.caches) largest = std::max(largest, cache.bytes);
  return largest;
}

}  // namespace spiritlevel
