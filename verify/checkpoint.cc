#include "verify/checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "verify/checkpoint_bytes.h"

namespace spiritlevel {
namespace {

constexpr std::string_view kMagic = "spiritlevel shard 1\n";

std::string BitsOf(const cpu::Tensor& tensor) {
  if (tensor.empty()) return {};
  return {static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())};
}

void PutBits(const std::string& bits, cpu::Tensor* tensor) {
  const size_t bytes = tensor->empty() ? 0 : static_cast<size_t>(tensor->bytes());
  if (bits.size() != bytes) throw InputError(fmt::format("{} bytes for {}", bits.size(), bytes));
  if (bytes > 0) std::memcpy(tensor->data(), bits.data(), bytes);
}

void WriteScalars(const TrainingScalars& scalars, ByteWriter* to) {
  to->Number(scalars.iteration);
  to->Number(scalars.step);
  to->Number(scalars.consumed_samples);
  to->Number(scalars.rate);
  to->Number(scalars.loss_scale);
  to->Number(scalars.good_steps);
}

TrainingScalars ReadScalars(ByteReader* from) {
  TrainingScalars scalars;
  scalars.iteration = from->Number<int64_t>();
  scalars.step = from->Number<int64_t>();
  scalars.consumed_samples = from->Number<int64_t>();
  scalars.rate = from->Number<float>();
  scalars.loss_scale = from->Number<float>();
  scalars.good_steps = from->Number<int64_t>();
  return scalars;
}

void WriteParameter(const std::string& name, const ParameterState& state, ByteWriter* to) {
  to->Text(name);
  to->Number(static_cast<int64_t>(state.storage));
  to->Number(state.rows);
  to->Number(state.cols);
  for (const std::string* bits :
       {&state.value, &state.first_moment, &state.second_moment, &state.master}) {
    to->Text(*bits);
  }
}

std::pair<std::string, ParameterState> ReadParameter(ByteReader* from) {
  std::string name = from->Text();
  ParameterState state;
  const auto storage = from->Number<int64_t>();
  if (storage < 0 || storage > static_cast<int64_t>(cpu::DType::kBFloat16)) {
    throw InputError("a parameter of an unknown type");
  }
  state.storage = static_cast<cpu::DType>(storage);
  state.rows = from->Number<int64_t>();
  state.cols = from->Number<int64_t>();
  for (std::string* bits :
       {&state.value, &state.first_moment, &state.second_moment, &state.master}) {
    *bits = from->Text();
  }
  return {std::move(name), std::move(state)};
}

void PutOne(const ParameterState& state, int i, cpu::Tensor* value,
            cpu::StageOptimizer* optimizer) {
  if (state.storage != value->type() || state.rows != value->rows() ||
      state.cols != value->cols()) {
    throw InputError("has another shape or type than the model's");
  }
  PutBits(state.value, value);
  PutBits(state.first_moment, &optimizer->first_moment(i));
  PutBits(state.second_moment, &optimizer->second_moment(i));
  PutBits(state.master, &optimizer->master(i));
}

}  // namespace

void CollectStates(const cpu::ParameterStore& parameters, cpu::StageOptimizer& optimizer,
                   ParameterStates* states) {
  for (int i = 0; i < static_cast<int>(optimizer.owned().size()); ++i) {
    const int at = optimizer.owned()[static_cast<size_t>(i)];
    const cpu::Tensor& value = parameters.value(at);
    ParameterState state{.storage = value.type(),
                         .rows = value.rows(),
                         .cols = value.cols(),
                         .value = BitsOf(value),
                         .first_moment = BitsOf(optimizer.first_moment(i)),
                         .second_moment = BitsOf(optimizer.second_moment(i)),
                         .master = BitsOf(optimizer.master(i))};
    SPIRITLEVEL_CHECK(states->emplace(parameters.info(at).name, std::move(state)).second,
                      "a rank's parameters have different names");
  }
}

void PutStates(const TrainingState& state, cpu::ParameterStore* parameters,
               cpu::StageOptimizer* optimizer) {
  for (int i = 0; i < static_cast<int>(optimizer->owned().size()); ++i) {
    const int at = optimizer->owned()[static_cast<size_t>(i)];
    const std::string& name = parameters->info(at).name;
    const auto found = state.parameters.find(name);
    if (found == state.parameters.end()) {
      throw InputError(name + ": not in the checkpoint", "resume with the model that was saved");
    }
    try {
      PutOne(found->second, i, &parameters->value(at), optimizer);
    } catch (const InputError& error) {
      throw error.At(name);
    }
  }
  optimizer->set_step(state.scalars.step);
  parameters->set_version(state.scalars.step);
}

std::string Pack(const TrainingScalars& scalars, const ParameterStates& parameters) {
  ByteWriter to;
  to.Raw(kMagic);
  WriteScalars(scalars, &to);
  to.Number(static_cast<int64_t>(parameters.size()));
  for (const auto& [name, state] : parameters) WriteParameter(name, state, &to);
  to.Number(ChecksumOf(to.bytes()));
  return std::move(to).Take();
}

TrainingState Unpack(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) throw InputError("is not a shard of a checkpoint");
  if (bytes.size() < kMagic.size() + sizeof(uint64_t)) throw InputError("ends too early");
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  ByteReader end(bytes.substr(body.size()));
  if (end.Number<uint64_t>() != ChecksumOf(body)) {
    throw InputError("its bytes are not those that were written");
  }
  ByteReader from(body.substr(kMagic.size()));
  TrainingState state{.scalars = ReadScalars(&from), .parameters = {}};
  const auto count = from.Number<int64_t>();
  for (int64_t i = 0; i < count; ++i) state.parameters.insert(ReadParameter(&from));
  if (!from.is_at_end()) throw InputError("goes on behind its end");
  return state;
}

TrainingState Merge(std::span<const std::string> parts) {
  SPIRITLEVEL_CHECK(!parts.empty(), "a state is put together of something");
  TrainingState all = Unpack(parts.front());
  for (const std::string& part : parts.subspan(1)) {
    TrainingState more = Unpack(part);
    SPIRITLEVEL_CHECK(more.scalars == all.scalars, "all ranks are at the same validated version");
    for (auto& [name, state] : more.parameters) {
      const auto [at, is_new] = all.parameters.try_emplace(name, state);
      SPIRITLEVEL_CHECK(is_new || at->second == state,
                        "two copies of a parameter have the same bits");
    }
  }
  return all;
}

}  // namespace spiritlevel
