// MessageDesk: tensors that leave a rank and come to it, and the rank's live bytes without them.
//
// A result that is handed over belongs to nobody's live memory until an op takes it: where it is in
// between, and for how long, is a matter of timing. Inside the op that makes or takes it, it
// counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/units.h"
#include "kernels/cpu/model/tensor.h"
#include "verify/payload.h"

namespace spiritlevel {

class MessageDesk {
 public:
  explicit MessageDesk(std::shared_ptr<cpu::MemoryMeter> meter);
  ~MessageDesk();

  // Without copying. Whoever ends up with the payload may destroy it on any thread, at any time.
  Payload HandOver(cpu::Tensor tensor);
  // A buffer that never counts as live.
  Payload NewPayload(Bytes bytes);
  // Made by this rank: the tensor itself. By another: copied into a new one.
  cpu::Tensor Take(Payload payload, cpu::DType type, int64_t rows, int64_t cols);

  // The run has failed: what is on its way still is freed as soon as it comes back, whether or not
  // this rank runs ever again.
  void Abandon() noexcept;
  // For another run.
  void BeginRun();

  // Most live bytes since the last call, without what was handed over at the time.
  Bytes TakePeak();
  Bytes live() const;
  Bytes most_handed_over() const { return most_handed_over_; }

 private:
  struct Parcel;
  struct Returns;

  Payload Wrap(cpu::Tensor tensor);  // that is counted as handed over
  void Collect();                    // what others have given back
  void FreeAtOnce();                 // what others will give back, too
  void Change(Bytes handed);         // of handed_over_

  std::shared_ptr<cpu::MemoryMeter> meter_;
  std::shared_ptr<Returns> returns_;
  Bytes handed_over_ = 0;
  Bytes most_handed_over_ = 0;
  Bytes peak_ = 0;
};

}  // namespace spiritlevel
