# Whether CUDA is compiled, and how. Sets SPIRITLEVEL_HAS_CUDA; a build without it is a full build
# of everything else.
set(SPIRITLEVEL_CUDA AUTO CACHE STRING "Compile CUDA: AUTO (where there is a toolkit), ON or OFF")
set_property(CACHE SPIRITLEVEL_CUDA PROPERTY STRINGS AUTO ON OFF)

set(SPIRITLEVEL_HAS_CUDA OFF)
if(SPIRITLEVEL_CUDA STREQUAL "OFF")
  message(STATUS "CUDA is switched off")
elseif(SPIRITLEVEL_SANITIZE)
  # The sanitizers know nothing of a device; the kernels' arithmetic is run on the host under them.
  message(STATUS "CUDA is left out of a build with sanitizers")
else()
  # Also where nvcc lies in /usr/local/cuda and not on the path.
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND EXISTS "${CUDAToolkit_NVCC_EXECUTABLE}")
    set(SPIRITLEVEL_HAS_CUDA ON)
    message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found")
  elseif(SPIRITLEVEL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPIRITLEVEL_CUDA is ON, and there is no CUDA toolkit")
  else()
    message(STATUS "CUDA toolkit not found: building without it")
  endif()
endif()

if(SPIRITLEVEL_HAS_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    # Ampere, Hopper, Blackwell; those that this nvcc knows.
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code
                    OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[^\n]+" known "${known}")
    foreach(architecture 80 90 100)
      if(sm_${architecture} IN_LIST known)
        list(APPEND wanted ${architecture}-real)
      endif()
    endforeach()
    set(CMAKE_CUDA_ARCHITECTURES ${wanted} CACHE STRING "Architectures that kernels are built for")
  endif()
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc has had C++20 since 12.0.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  message(STATUS "CUDA kernels for ${CMAKE_CUDA_ARCHITECTURES}")
endif()

# spiritlevel_cuda_library(NAME SRCS ... [DEPS public ...] [PRIVATE_DEPS ...]), of .cu and .cc
#
# The runtime is linked in: a program that was built here starts where there is no toolkit.
function(spiritlevel_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(spiritlevel_${name} STATIC ${ARG_SRCS})
  add_library(spiritlevel::${name} ALIAS spiritlevel_${name})
  target_link_libraries(spiritlevel_${name} PUBLIC ${ARG_DEPS} CUDA::cudart_static
                                            PRIVATE ${ARG_PRIVATE_DEPS})
  target_include_directories(spiritlevel_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  # Not -Wpedantic for what nvcc hands to the host's compiler, whose line markers are an extension.
  list(JOIN warnings "," joined)
  set(cuda_options -Xcompiler=${joined})
  if(CMAKE_COMPILE_WARNING_AS_ERROR)
    list(APPEND cuda_options -Xcompiler=-Werror)
  endif()
  target_compile_options(spiritlevel_${name}
    PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-Wpedantic>"
            "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")
  if(SPIRITLEVEL_STL_ASSERTIONS)
    target_compile_definitions(spiritlevel_${name} PUBLIC _GLIBCXX_ASSERTIONS)
  endif()
endfunction()
