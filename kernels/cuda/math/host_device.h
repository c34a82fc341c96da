// What is compiled for the host by any compiler, and for the device too by nvcc.
#pragma once

#ifdef __CUDACC__
#define SPIRITLEVEL_HOST_DEVICE __host__ __device__
#else
#define SPIRITLEVEL_HOST_DEVICE
#endif
