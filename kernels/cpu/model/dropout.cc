#include "kernels/cpu/model/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/model/philox.h"

namespace spiritlevel::cpu {
namespace {

// Blocks of four words that are made side by side, which compilers turn into vector instructions.
constexpr int kBlocks = 16;
constexpr int64_t kWords = 4 * kBlocks;

uint32_t Word32(int64_t number) {
  SPIRITLEVEL_CHECK(number >= 0 && number <= UINT32_MAX, "a part of a counter has 32 bits");
  return static_cast<uint32_t>(number);
}

// words[4 i + j] is word j of block first + i.
void RandomWords(uint32_t first, const PhiloxCounter& counter, const PhiloxKey& key,
                 uint32_t* words) {
#pragma omp simd
  for (int i = 0; i < kBlocks; ++i) {
    uint32_t c0 = first + static_cast<uint32_t>(i);
    uint32_t c1 = counter[1];
    uint32_t c2 = counter[2];
    uint32_t c3 = counter[3];
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53} * c0;
      const uint64_t b = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(b);
      c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(a);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    words[4 * i] = c0;
    words[4 * i + 1] = c1;
    words[4 * i + 2] = c2;
    words[4 * i + 3] = c3;
  }
}

}  // namespace

void ApplyDropout(double probability, const DropoutSite& site, Matrix x) {
  SPIRITLEVEL_CHECK(probability >= 0 && probability < 1, "dropout has a probability");
  SPIRITLEVEL_CHECK(x.stride() == x.cols(), "a mask is counted through without gaps");
  const int64_t size = x.rows() * x.cols();
  Word32((size + 3) / 4);
  const PhiloxCounter counter{0, Word32(4 * site.layer + static_cast<int64_t>(site.place)),
                              Word32(site.micro_batch), Word32(site.iteration)};
  const PhiloxKey key = KeyOf(site.seed);
  const auto dropped =
      static_cast<uint32_t>(std::min(std::round(probability * 0x1p32), 0x1p32 - 1));
  const auto factor = static_cast<float>(1 / (1 - probability));
  uint32_t words[kWords];
  for (int64_t begin = 0; begin < size; begin += kWords) {
    RandomWords(static_cast<uint32_t>(begin / 4), counter, key, words);
    float* const values = x.data() + begin;
    const int64_t count = std::min(kWords, size - begin);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = words[i] < dropped ? 0.0f : values[i] * factor;
    }
  }
}

}  // namespace spiritlevel::cpu
