// A device whose numbers can be worked with in one's head.
#pragma once

#include "models/device_profile.h"

namespace spiritlevel {

inline DeviceProfile MadeUpDevice() {
  DeviceProfile device;
  device.name = "made up";
  device.dtype = DType::kBFloat16;
  device.gemm[0].points = {{1, 1}};
  device.gemm[1].points = {{1, 1.5}};
  device.gemm[2].points = {{1, 2}};
  device.attention_forward.line = {.base_ns = 100, .per_unit_ns = 2};
  device.attention_backward = device.attention_forward;
  // Of one row each.
  device.norm_forward.line = {.base_ns = 200, .per_unit_ns = 1};
  device.norm_input_grad.line = {.base_ns = 210, .per_unit_ns = 2};
  device.norm_weight_grad.line = {.base_ns = 220, .per_unit_ns = 3};
  device.embedding_forward.line = {.base_ns = 400.0 / 1024, .per_unit_ns = 1};
  device.embedding_backward = device.embedding_forward;
  device.elementwise.line = {.base_ns = 300, .per_unit_ns = 1};
  device.loss_forward.line = {.base_ns = 500, .per_unit_ns = 1};
  device.loss_backward = device.loss_forward;
  device.optimizer = {.base_ns = 0, .per_unit_ns = 0.25};
  device.launch_ns = 50;
  device.transfer_latency_ns = 1000;
  device.transfer_ns_per_byte = 0.5;
  return device;
}

// Only matrix products and attention take time, 1 ns for 1000 FLOPs.
inline DeviceProfile OnlyFlops() {
  DeviceProfile device;
  device.name = "only FLOPs";
  device.dtype = DType::kBFloat16;
  for (RateCurve& curve : device.gemm) curve.points = {{1, 1e-3}};
  device.attention_forward.line.per_unit_ns = 1e-3;
  device.attention_backward.line.per_unit_ns = 1e-3;
  return device;
}

}  // namespace spiritlevel
