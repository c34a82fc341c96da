# The layer between host and device: the fake of it, what is written against it, and the real one.
spiritlevel_library(fake_cuda_layer
  SRCS fake_communication.cc fake_engine.cc fake_exchange.cc fake_layer.cc fake_operands.cc
       fake_races.cc
  DEPS spiritlevel::kernels_cuda_host)

spiritlevel_test(fake_cuda_layer
  SRCS fake_layer_test.cc fake_communication_test.cc fake_faults_test.cc
  DEPS spiritlevel::fake_cuda_layer Threads::Threads)
spiritlevel_test(cuda_host_logic SRCS product_plans_test.cc buffer_pool_test.cc
                 DEPS spiritlevel::fake_cuda_layer spiritlevel::kernels_model Threads::Threads)

if(SPIRITLEVEL_HAS_CUDA)
  spiritlevel_test(cuda_layer SRCS cuda_layer_test.cc
                   DEPS spiritlevel::cuda_layer spiritlevel::kernels_cuda_host LABELS gpu)
endif()
