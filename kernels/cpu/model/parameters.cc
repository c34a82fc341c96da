#include "kernels/cpu/model/parameters.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/model/bfloat16.h"
#include "kernels/cpu/model/philox.h"

namespace spiritlevel::cpu {
namespace {

// FNV-1a (Fowler, Noll and Vo), 64 bits.
uint64_t HashOf(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

constexpr double kTableDeviation = 0.02;

// Uniform, of the standard deviation asked for.
void FillUniform(uint64_t hash, uint64_t seed, double deviation, std::span<float> values) {
  const double most = std::sqrt(3.0) * deviation;
  for (size_t i = 0; i < values.size(); i += 4) {
    const PhiloxCounter words =
        Philox({static_cast<uint32_t>(i / 4), static_cast<uint32_t>((i / 4) >> 32),
                static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
               KeyOf(seed));
    for (size_t j = 0; j < std::min<size_t>(4, values.size() - i); ++j) {
      values[i + j] = static_cast<float>((words[j] * 0x1p-31 - 1) * most);
    }
  }
}

}  // namespace

void InitialValues(const ParameterInfo& info, uint64_t seed, std::span<float> values) {
  SPIRITLEVEL_CHECK(static_cast<int64_t>(values.size()) == info.size(), "all of a parameter");
  const uint64_t hash = HashOf(info.begins_as.empty() ? info.name : info.begins_as);
  switch (info.kind) {
    case ParameterInfo::Kind::kOnes:
      std::fill(values.begin(), values.end(), 1.0f);
      break;
    case ParameterInfo::Kind::kZeros:
      std::fill(values.begin(), values.end(), 0.0f);
      break;
    case ParameterInfo::Kind::kTable:
      FillUniform(hash, seed, kTableDeviation, values);
      break;
    case ParameterInfo::Kind::kWeight:
      FillUniform(hash, seed, 1 / std::sqrt(static_cast<double>(info.fan_in)), values);
      break;
  }
}

ParameterStore::ParameterStore(const ModelShape& shape, const StageRange& range, MemoryMeter* meter)
    : infos_(ParametersOf(shape, range)), meter_(meter), seed_(shape.seed) {
  std::vector<float> exact;
  for (const ParameterInfo& info : infos_) {
    values_.emplace_back(meter, TensorUse::kParameters, shape.storage, info.rows, info.cols);
    if (shape.storage == DType::kFloat32) {
      InitialValues(info, seed_, values_.back().span());
    } else {
      exact.resize(static_cast<size_t>(info.size()));
      InitialValues(info, seed_, exact);
      Round(exact, values_.back().halves());
    }
  }
}

int ParameterStore::Find(std::string_view name) const {
  for (int i = 0; i < size(); ++i) {
    if (info(i).name == name) return i;
  }
  return -1;
}

int64_t ParameterStore::num_elements() const {
  int64_t sum = 0;
  for (const ParameterInfo& info : infos_) sum += info.size();
  return sum;
}

GradientStore::GradientStore(const ParameterStore& parameters) {
  for (int i = 0; i < parameters.size(); ++i) {
    const ParameterInfo& info = parameters.info(i);
    sums_.emplace_back(parameters.meter(), TensorUse::kGradients, DType::kFloat32, info.rows,
                       info.cols);
  }
  Zero();
}

void GradientStore::Zero() {
  for (Tensor& sum : sums_) std::ranges::fill(sum.span(), 0.0f);
}

void GradientStore::Add(const GradientStore& other) {
  SPIRITLEVEL_CHECK(size() == other.size(), "two gradients of one stage");
  for (int i = 0; i < size(); ++i) {
    const std::span<float> to = sum(i).span();
    const std::span<const float> from = other.sum(i).span();
    SPIRITLEVEL_CHECK(to.size() == from.size(), "two gradients of one parameter");
    for (size_t j = 0; j < to.size(); ++j) to[j] += from[j];
  }
}

}  // namespace spiritlevel::cpu
