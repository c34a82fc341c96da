#include <algorithm>
#include <array>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/cores.h"
#include "verify/clock.h"
#include "verify/isolated.h"

namespace spiritlevel {
namespace {

constexpr std::array<int64_t, 3> kSizes = {512, 768, 1024};
constexpr int kRepetitions = 5;

// FLOPs a second of C = A B, of square matrices.
double RateOf(int64_t size) {
  const auto elements = static_cast<size_t>(size * size);
  std::vector<float> a(elements, 0.5f), b(elements, 0.25f), c(elements);
  const TimeNs start = Now();
  cpu::Gemm(1, {a.data(), size, size}, cpu::Transpose::kNo, {b.data(), size, size},
            cpu::Transpose::kNo, 0, {c.data(), size, size});
  const auto took = static_cast<double>(std::max<TimeNs>(1, Now() - start));
  return 2e9 * static_cast<double>(size * size * size) / took;
}

}  // namespace

double TimeBestGemm(const std::vector<int>& cores) {
  const std::set<int> distinct(cores.begin(), cores.end());
  std::vector<double> best(std::max<size_t>(1, distinct.size()), 0);
  std::barrier<> gate(std::ssize(best));
  std::vector<std::thread> threads;
  const auto measure = [&](size_t index, int core) {
    if (core >= 0) cpu::PinThisThread({core});
    gate.arrive_and_wait();
    for (const int64_t size : kSizes) {
      for (int i = 0; i < kRepetitions; ++i) best[index] = std::max(best[index], RateOf(size));
    }
  };
  if (distinct.empty()) threads.emplace_back(measure, 0, -1);
  size_t index = 0;
  for (const int core : distinct) threads.emplace_back(measure, index++, core);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(best.begin(), best.end());
}

}  // namespace spiritlevel
