#include "verify/model_work_messages.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace spiritlevel {

// What has come back lies here until the rank looks, so that its bytes do not change while an op
// runs.
struct MessageDesk::Returns {
  std::mutex mutex;
  Parcel* first = nullptr;
  bool is_closed = false;  // nobody will look
  Bytes freed = 0;         // since it was closed
};

struct MessageDesk::Parcel {
  std::shared_ptr<cpu::MemoryMeter> meter;  // outlives the tensor
  std::shared_ptr<Returns> returns;
  cpu::Tensor tensor;
  Parcel* next = nullptr;

  static void GiveBack(void* context, std::byte*, size_t) {
    auto* const parcel = static_cast<Parcel*>(context);
    const std::shared_ptr<Returns> returns = parcel->returns;
    {
      const std::lock_guard lock(returns->mutex);
      if (!returns->is_closed) {
        parcel->next = std::exchange(returns->first, parcel);
        return;
      }
      returns->freed += parcel->tensor.bytes();
    }
    delete parcel;
  }
};

MessageDesk::MessageDesk(std::shared_ptr<cpu::MemoryMeter> meter)
    : meter_(std::move(meter)), returns_(std::make_shared<Returns>()) {
  meter_->ResetPeaks();
  peak_ = meter_->live();
}

MessageDesk::~MessageDesk() { FreeAtOnce(); }

void MessageDesk::Abandon() noexcept { FreeAtOnce(); }

void MessageDesk::FreeAtOnce() {
  {
    const std::lock_guard lock(returns_->mutex);
    returns_->is_closed = true;
  }
  Collect();
}

void MessageDesk::BeginRun() {
  {
    const std::lock_guard lock(returns_->mutex);
    returns_->is_closed = false;
  }
  TakePeak();
}

void MessageDesk::Change(Bytes handed) {
  peak_ = std::max(peak_, meter_->peak() - handed_over_);
  meter_->ResetPeaks();
  handed_over_ += handed;
  most_handed_over_ = std::max(most_handed_over_, handed_over_);
}

void MessageDesk::Collect() {
  Parcel* parcel = nullptr;
  Bytes returned = 0;
  {
    const std::lock_guard lock(returns_->mutex);
    parcel = std::exchange(returns_->first, nullptr);
    returned = std::exchange(returns_->freed, 0);
  }
  while (parcel != nullptr) {
    returned += parcel->tensor.bytes();
    delete std::exchange(parcel, parcel->next);
  }
  if (returned > 0) Change(-returned);
}

Payload MessageDesk::HandOver(cpu::Tensor tensor) {
  Change(tensor.bytes());
  return Wrap(std::move(tensor));
}

Payload MessageDesk::Wrap(cpu::Tensor tensor) {
  auto* const data = static_cast<std::byte*>(tensor.data());
  const auto bytes = static_cast<size_t>(tensor.bytes());
  auto* const parcel =
      new Parcel{.meter = meter_, .returns = returns_, .tensor = std::move(tensor)};
  return Payload::Adopt(data, bytes, &Parcel::GiveBack, parcel);
}

Payload MessageDesk::NewPayload(Bytes bytes) {
  SPIRITLEVEL_CHECK(bytes % Bytes{sizeof(float)} == 0, "gradients are whole numbers of floats");
  // Counted as handed over before it is there, so that no peak sees it.
  Change(bytes);
  cpu::Tensor tensor(meter_.get(), cpu::TensorUse::kCommunication, cpu::DType::kFloat32, 1,
                     bytes / Bytes{sizeof(float)});
  return Wrap(std::move(tensor));
}

cpu::Tensor MessageDesk::Take(Payload payload, cpu::DType type, int64_t rows, int64_t cols) {
  const Payload::Raw raw = std::move(payload).TakeApart();
  payload = Payload::PutTogether(raw);
  SPIRITLEVEL_CHECK(static_cast<Bytes>(raw.bytes) == rows * cols * cpu::SizeOf(type),
                    "a message is as large as the tensor it carries");
  auto* const parcel = raw.free == &Parcel::GiveBack ? static_cast<Parcel*>(raw.context) : nullptr;
  if (parcel != nullptr && parcel->meter == meter_) {
    std::move(payload).TakeApart();
    const std::unique_ptr<Parcel> own(parcel);
    cpu::Tensor tensor = std::move(own->tensor);
    SPIRITLEVEL_CHECK(tensor.type() == type && tensor.rows() == rows && tensor.cols() == cols,
                      "a message is what it was sent as");
    Change(-tensor.bytes());
    return tensor;
  }
  cpu::Tensor copy(meter_.get(), cpu::TensorUse::kCommunication, type, rows, cols);
  std::memcpy(copy.data(), raw.data, raw.bytes);
  return copy;
}

Bytes MessageDesk::live() const { return meter_->live() - handed_over_; }

Bytes MessageDesk::TakePeak() {
  Collect();
  Change(0);
  return std::exchange(peak_, live());
}

}  // namespace spiritlevel
