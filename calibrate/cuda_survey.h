// What a GPU has beside the primitives: copies, messages and collectives over sizes, how compute
// and communication get in each other's way, fp8 products, what posting costs the host, and memory.
// Internal to calibrate/.
#pragma once

#include <vector>

#include "calibrate/calibration.h"
#include "calibrate/cuda_device.h"

namespace spiritlevel {

struct SizeToTake {
  Bytes bytes = 0;
  bool held_out = false;
};

struct CudaSurveyPlan {
  std::vector<SizeToTake> copies;
  std::vector<SizeToTake> messages;  // and collectives
  struct Product {
    Gemm gemm;
    bool held_out = false;
  };
  std::vector<Product> products_fp8;  // all three uses of them
  Bytes beside = Bytes{64} << 20;     // the messages that pass beside kernels
  Gemm full_chip{.m = 8192, .n = 8192, .k = 8192};
  Bytes behind = Bytes{1} << 20;  // the message that is posted behind that
};

CudaSurveyPlan MakeCudaSurveyPlan(bool quick);

// Fills c->gpu and the GPU's part of the profile, fits included, within about `seconds`. What the
// device or its libraries cannot do, and exchanges that fail, are named in `left_out`; any other
// failure is thrown as the layer throws it.
void SurveyCuda(CudaDevice* device, const CudaSurveyPlan& plan, double seconds,
                const std::atomic<bool>* stop, const CalibrationObserver& observer, Calibration* c);

}  // namespace spiritlevel
