#include "verify/model_plan_record.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace spiritlevel {
namespace {

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    PutBytes(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  void PutAll(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Put<uint64_t>(values.size());
    PutBytes(std::as_bytes(std::span(values)));
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void PutBytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  void Get(T& value) {
    GetBytes(&value, sizeof(T));
  }
  template <typename T>
  void GetAll(std::vector<T>& values) {
    values.resize(Count(sizeof(T)));
    GetBytes(values.data(), values.size() * sizeof(T));
  }
  // Of things that take `least` bytes each: a wrong number does not allocate the world.
  size_t Count(size_t least) {
    uint64_t count = 0;
    Get(count);
    SPIRITLEVEL_CHECK(count <= bytes_.size() / least, "a record has all it says it has");
    return static_cast<size_t>(count);
  }
  bool is_at_end() const { return bytes_.empty(); }

 private:
  void GetBytes(void* to, size_t count) {
    SPIRITLEVEL_CHECK(count <= bytes_.size(), "a record is as long as it says");
    if (count > 0) std::memcpy(to, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }
  std::span<const std::byte> bytes_;
};

// What a step has beside losses and parameters.
template <typename Step, typename Visit>
void ForEachNumber(Step& step, Visit&& visit) {
  visit("iteration", step.step);
  visit("optimizer steps", step.optimizer_steps);
  visit("consumed samples", step.consumed_samples);
  visit("learning rate", step.rate);
  visit("norm", step.norm);
  visit("clip coefficient", step.clip);
}

template <typename Parameter, typename Visit>
void ForEachTensor(Parameter& parameter, Visit&& visit) {
  visit("gradient of ", parameter.gradient);
  visit("value of ", parameter.value);
  visit("first moment of ", parameter.first_moment);
  visit("second moment of ", parameter.second_moment);
  visit("master weight of ", parameter.master);
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

template <typename T>
std::string Digits(T number) {
  char digits[40];
  std::snprintf(digits, sizeof(digits), "%.17g", static_cast<double>(number));
  return digits;
}

std::string TensorDifference(const std::string& what, const std::vector<float>& a,
                             const std::vector<float>& b) {
  if (SameBits(a, b)) return "";
  if (a.size() != b.size()) {
    return what + " has " + std::to_string(a.size()) + " and " + std::to_string(b.size()) +
           " entries";
  }
  size_t count = 0;
  size_t first = 0;
  for (size_t i = a.size(); i-- > 0;) {
    if (SameBits(a[i], b[i])) continue;
    first = i;
    ++count;
  }
  return what + " differs in " + std::to_string(count) + " of " + std::to_string(a.size()) +
         " entries, first [" + std::to_string(first) + "]: " + Digits(a[first]) + " and " +
         Digits(b[first]);
}

std::string LossDifference(const StepRecord& a, const StepRecord& b) {
  if (a.losses.size() != b.losses.size()) {
    return std::to_string(a.losses.size()) + " and " + std::to_string(b.losses.size()) + " losses";
  }
  for (size_t i = 0; i < a.losses.size(); ++i) {
    if (a.losses[i].micro_batch == b.losses[i].micro_batch &&
        SameBits(a.losses[i].sum, b.losses[i].sum)) {
      continue;
    }
    return "loss of micro-batch " + std::to_string(a.losses[i].micro_batch) +
           " differs: " + Digits(a.losses[i].sum) + " and " + Digits(b.losses[i].sum);
  }
  return "";
}

// The first in the order in which they come about, and how many parameters there are after it.
std::string StepDifference(const ParameterNumbers& numbers, const StepRecord& a,
                           const StepRecord& b) {
  if (std::string losses = LossDifference(a, b); !losses.empty()) return losses;
  if (a.parameters.size() != b.parameters.size()) {
    return std::to_string(a.parameters.size()) + " and " + std::to_string(b.parameters.size()) +
           " parameters";
  }
  // All gradients before any value: a value differs because a gradient does.
  for (size_t kind = 0; kind < 5; ++kind) {
    std::string first;
    int more = -1;
    for (size_t i = 0; i < a.parameters.size(); ++i) {
      std::vector<const std::vector<float>*> of_b;
      ForEachTensor(b.parameters[i], [&](const char*, const auto& t) { of_b.push_back(&t); });
      size_t k = 0;
      ForEachTensor(a.parameters[i], [&](const char* what, const std::vector<float>& tensor) {
        const size_t at = k++;
        if (at != kind) return;
        std::string found =
            TensorDifference(what + numbers.name(a.parameters[i].number), tensor, *of_b[at]);
        if (found.empty()) return;
        if (++more == 0) first = std::move(found);
      });
    }
    if (more > 0) first += ", and " + std::to_string(more) + " parameters more";
    if (!first.empty()) return first;
  }
  std::string found;
  std::vector<double> of_b;
  ForEachNumber(b, [&](const char*, auto number) { of_b.push_back(static_cast<double>(number)); });
  size_t k = 0;
  ForEachNumber(a, [&](const char* what, auto number) {
    const double other = of_b[k++];
    if (SameBits(static_cast<double>(number), other) || !found.empty()) return;
    found = std::string(what) + ": " + Digits(number) + " and " + Digits(other);
  });
  return found;
}

// Two ranks tell of one thing: `to` has it from now on.
void Merge(const std::string& what, const std::vector<float>& from, std::vector<float>& to) {
  if (from.empty()) return;
  if (to.empty()) {
    to = from;
  } else if (!SameBits(from, to)) {
    throw std::runtime_error("two ranks do not agree: " + TensorDifference(what, to, from));
  }
}

void MergeParameter(const ParameterNumbers& numbers, const ParameterRecord& from,
                    ParameterRecord& to) {
  std::vector<std::vector<float>*> tensors;
  ForEachTensor(to, [&](const char*, std::vector<float>& tensor) { tensors.push_back(&tensor); });
  size_t i = 0;
  ForEachTensor(from, [&](const char* what, const std::vector<float>& tensor) {
    Merge(what + numbers.name(from.number), tensor, *tensors[i++]);
  });
}

// Of one step, from all ranks.
class StepMerger {
 public:
  explicit StepMerger(const ParameterNumbers& numbers) : numbers_(numbers) {}

  void Add(const StepRecord& from) {
    for (const LossRecord& loss : from.losses) losses_[loss.micro_batch] = loss.sum;
    for (const ParameterRecord& parameter : from.parameters) {
      const auto [place, is_new] = parameters_.emplace(parameter.number, parameter);
      if (!is_new) MergeParameter(numbers_, parameter, place->second);
    }
    if (is_first_) step_ = {.step = from.step};
    StepRecord numbers = from;
    numbers.losses.clear();
    numbers.parameters.clear();
    if (is_first_) step_ = numbers;
    is_first_ = false;
    if (const std::string found = StepDifference(numbers_, step_, numbers); !found.empty()) {
      throw std::runtime_error("two ranks do not agree on step " + std::to_string(from.step) +
                               ": " + found);
    }
  }

  StepRecord Take() {
    for (const auto& [micro_batch, sum] : losses_) step_.losses.push_back({micro_batch, sum});
    for (auto& [number, parameter] : parameters_) step_.parameters.push_back(std::move(parameter));
    return std::move(step_);
  }

 private:
  const ParameterNumbers& numbers_;
  bool is_first_ = true;
  StepRecord step_;
  std::map<int, double> losses_;
  std::map<int, ParameterRecord> parameters_;
};

}  // namespace

Payload Serialize(const RankRecord& record) {
  Writer writer;
  writer.Put<uint64_t>(record.steps.size());
  for (const StepRecord& step : record.steps) {
    ForEachNumber(step, [&](const char*, const auto& number) { writer.Put(number); });
    writer.Put<uint64_t>(step.losses.size());
    for (const LossRecord& loss : step.losses) {
      writer.Put(loss.micro_batch);
      writer.Put(loss.sum);
    }
    writer.Put<uint64_t>(step.parameters.size());
    for (const ParameterRecord& parameter : step.parameters) {
      writer.Put(parameter.number);
      ForEachTensor(parameter, [&](const char*, const auto& tensor) { writer.PutAll(tensor); });
    }
  }
  writer.Put(record.memory);
  return Payload::CopyOf(writer.bytes());
}

RankRecord ParseRankRecord(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  RankRecord record;
  record.steps.resize(reader.Count(sizeof(int64_t)));
  for (StepRecord& step : record.steps) {
    ForEachNumber(step, [&](const char*, auto& number) { reader.Get(number); });
    step.losses.resize(reader.Count(sizeof(double)));
    for (LossRecord& loss : step.losses) {
      reader.Get(loss.micro_batch);
      reader.Get(loss.sum);
    }
    step.parameters.resize(reader.Count(sizeof(int)));
    for (ParameterRecord& parameter : step.parameters) {
      reader.Get(parameter.number);
      ForEachTensor(parameter, [&](const char*, auto& tensor) { reader.GetAll(tensor); });
    }
  }
  reader.Get(record.memory);
  SPIRITLEVEL_CHECK(reader.is_at_end(), "a record ends where it says");
  return record;
}

TrainingRecord RecordOf(const TrainingTask& task, std::span<const Payload> results) {
  const ParameterNumbers numbers(task);
  std::map<int64_t, StepMerger> steps;
  for (const Payload& result : results) {
    for (const StepRecord& step : ParseRankRecord(result.bytes()).steps) {
      steps.try_emplace(step.step, numbers).first->second.Add(step);
    }
  }
  TrainingRecord record;
  for (auto& [number, merger] : steps) record.push_back(merger.Take());
  return record;
}

std::string Difference(const TrainingTask& task, const TrainingRecord& a, const TrainingRecord& b) {
  const ParameterNumbers numbers(task);
  if (a.size() != b.size()) {
    return std::to_string(a.size()) + " and " + std::to_string(b.size()) + " steps";
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string found = StepDifference(numbers, a[i], b[i]);
    if (!found.empty()) return "step " + std::to_string(a[i].step) + ": " + found;
  }
  return "";
}

}  // namespace spiritlevel
