#include "calibrate/cuda_operands.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <span>

#include "base/check.h"
#include "kernels/cuda/calls.h"

namespace spiritlevel {
namespace {

using cuda::ElementType;
using Content = OperandSpec::Content;

// Of operands in a set, and of sets: as far as any algorithm's requirements go.
constexpr Bytes kAlignment = 256;
// Not a multiple of any kernel's tile: equal blocks would not lie at equal places.
constexpr Bytes kBlock = (Bytes{1} << 20) - 512;

Bytes RoundedUp(Bytes bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Bytes SumOf(const std::vector<OperandSpec>& specs, bool shared) {
  Bytes sum = 0;
  for (const OperandSpec& spec : specs) sum += spec.shared == shared ? RoundedUp(spec.bytes()) : 0;
  return sum;
}

std::vector<uint16_t> BFloat16Numbers() {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> between(-1, 1);
  std::vector<uint16_t> numbers(static_cast<size_t>(kBlock) / sizeof(uint16_t));
  for (uint16_t& number : numbers) {
    number = static_cast<uint16_t>(std::bit_cast<uint32_t>(between(random)) >> 16);
  }
  return numbers;
}

// Of magnitudes up to 1 in either format; never an infinity or NaN.
std::vector<uint8_t> Float8Numbers() {
  std::mt19937 random(7);
  constexpr uint32_t kOneAsE4M3 = 0x38;
  std::vector<uint8_t> numbers(static_cast<size_t>(kBlock));
  for (uint8_t& number : numbers) {
    const auto sign = (random() & 1) << 7;
    number = static_cast<uint8_t>(sign | (random() % (kOneAsE4M3 + 1)));
  }
  return numbers;
}

template <typename Number>
CudaMemory Upload(cuda::Layer* layer, int device, cuda::Stream stream,
                  const std::vector<Number>& numbers) {
  const auto bytes = static_cast<Bytes>(numbers.size() * sizeof(Number));
  CudaMemory memory = CudaMemory::OnDevice(layer, device, bytes);
  layer->Copy(stream, memory.data(), numbers.data(), bytes);
  layer->Synchronize(stream);  // the host's copy ends here
  return memory;
}

}  // namespace

// Of what is touched: the gaps between operands displace nothing.
int SetsOf(const std::vector<OperandSpec>& specs, Bytes l2) {
  Bytes one = 0;
  for (const OperandSpec& spec : specs) one += spec.shared ? 0 : spec.bytes();
  if (one == 0) return 1;
  return static_cast<int>(2 * l2 / one + 1);
}

Bytes BytesOf(const std::vector<OperandSpec>& specs, Bytes l2) {
  return SetsOf(specs, l2) * SumOf(specs, false) + SumOf(specs, true);
}

CudaFiller::CudaFiller(cuda::Layer* layer, int device, cuda::Stream stream)
    : layer_(layer),
      stream_(stream),
      wide_(Upload(layer, device, stream, BFloat16Numbers())),
      narrow_(Upload(layer, device, stream, Float8Numbers())) {}

// Doubles what is there, from a first copy of the block.
void CudaFiller::Repeat(const CudaMemory& block, std::byte* to, Bytes bytes) {
  Bytes there = std::min(bytes, kBlock);
  layer_->Copy(stream_, to, block.data(), there);
  while (there < bytes) {
    const Bytes more = std::min(there, bytes - there);
    layer_->Copy(stream_, to + there, to, more);
    there += more;
  }
}

void CudaFiller::Tokens(const OperandSpec& spec, std::byte* to, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(spec.rows * spec.cols));
  const auto vocabulary = static_cast<uint32_t>(
      std::min<int64_t>(spec.vocabulary, std::numeric_limits<int32_t>::max()));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocabulary);
  layer_->Copy(stream_, to, tokens.data(), spec.bytes());
  layer_->Synchronize(stream_);
}

void CudaFiller::Fill(const OperandSpec& spec, std::byte* to, uint32_t seed) {
  if (spec.bytes() == 0) return;
  switch (spec.content) {
    case Content::kTokens:
      Tokens(spec, to, seed);
      return;
    case Content::kZeros:
    case Content::kOnes: {
      // What is no number of ours for a kernel to fill (a sum in fp64) has as many zero bits in
      // fp32.
      SPIRITLEVEL_CHECK(spec.content == Content::kZeros || spec.type == ElementType::kFloat32,
                        "ones are fp32");
      const int64_t words = (spec.bytes() + 3) / 4;  // operands are apart by more
      layer_->Launch(stream_, cuda::Fill{.to = cuda::Dense(to, ElementType::kFloat32, 1, words),
                                         .value = spec.content == Content::kOnes ? 1.0f : 0});
      return;
    }
    case Content::kNumbers:
      Repeat(cuda::SizeOf(spec.type) == 1 ? narrow_ : wide_, to, spec.bytes());
      return;
  }
}

CudaOperands::CudaOperands(cuda::Layer* layer, int device, CudaFiller* filler,
                           std::vector<OperandSpec> specs, Bytes l2)
    : specs_(std::move(specs)), sets_(SetsOf(specs_, l2)), stride_(SumOf(specs_, false)) {
  if (stride_ > 0) own_ = CudaMemory::OnDevice(layer, device, sets_ * stride_);
  const Bytes shared = SumOf(specs_, true);
  if (shared > 0) shared_ = CudaMemory::OnDevice(layer, device, shared);
  // All sets at once: thousands of small ones would take long one by one.
  const bool narrow = std::any_of(specs_.begin(), specs_.end(), [](const OperandSpec& spec) {
    return cuda::SizeOf(spec.type) == 1;
  });
  filler->Fill({.type = narrow ? ElementType::kFloat8E4M3 : ElementType::kBFloat16,
                .cols = sets_ * stride_ / (narrow ? 1 : 2)},
               own_.data(), 0);
  for (int set = 0; set < sets_; ++set) {
    const std::vector<cuda::View> views = ViewsOf(set);
    for (size_t i = 0; i < specs_.size(); ++i) {
      const bool done = specs_[i].shared ? set > 0 : specs_[i].content == Content::kNumbers;
      if (done) continue;
      filler->Fill(specs_[i], static_cast<std::byte*>(views[i].data),
                   static_cast<uint32_t>(set) + 1);
    }
  }
}

std::vector<cuda::View> CudaOperands::ViewsOf(int set) const {
  std::byte* own = own_.data() == nullptr ? nullptr : own_.data() + set * stride_;
  std::byte* shared = shared_.data();
  std::vector<cuda::View> views;
  for (const OperandSpec& spec : specs_) {
    std::byte*& at = spec.shared ? shared : own;
    views.push_back(cuda::Dense(at, spec.type, spec.rows, spec.cols));
    if (at != nullptr) at += RoundedUp(spec.bytes());
  }
  return views;
}

}  // namespace spiritlevel
