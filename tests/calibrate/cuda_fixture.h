// A small GPU that is made up: shapes that a host computes in an instant, and times long enough
// that a sample is a run or two.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/cuda_calibration.h"
#include "tests/kernels/cuda/fake_layer.h"

namespace spiritlevel {

// The fake's time of a kernel or product: 0.4 ms, and 20 ns for each element it is told of first.
// Filling memory, which is what holds work back until all is posted, takes 50 us; one element, what
// an empty op takes, 0.9 us. Copies and transfers take 2 us and a byte a ns.
TimeNs MadeUpTime(const cuda::FakeCost& cost);

cuda::FakeSettings MadeUpGpu(int devices = 1);

// Remembers communicators, and can break one when something is sent.
class SpyLayer : public cuda::FakeLayer {
 public:
  using FakeLayer::FakeLayer;

  cuda::Communicator MakeCommunicator(int device, const cuda::CommunicatorId& id, int size,
                                      int rank) override;
  void Send(cuda::Communicator communicator, cuda::Stream stream, const void* data, Bytes bytes,
            int peer) override;
  void Launch(cuda::Stream stream, const cuda::Call& call) override;

  void BreakAtSend(int nth) { sends_to_break_ = nth; }
  // What was launched on each stream, and on which memory its first operand lay.
  std::vector<std::pair<cuda::Stream, const void*>> launched(const std::string& name) const;

 private:
  int sends_to_break_ = 0;
  std::multimap<std::string, std::pair<cuda::Stream, const void*>> launched_;
};

CudaDeviceSettings TinySettings(std::vector<int> peers = {}, int partitions = 1);
CudaSurveyPlan TinySurvey();
std::vector<PlannedWork> TinyPlan();  // two sizes of each primitive, and a third that is held out
CudaCalibrationOptions TinyOptions(std::vector<int> peers = {}, int partitions = 1);

Calibration TinyCalibration(cuda::Layer* layer, std::vector<int> peers = {},
                            const CalibrationObserver& observer = {});

// Nothing is left on it.
void ExpectNothingLeft(const cuda::FakeLayer& layer, int devices = 1);

}  // namespace spiritlevel
