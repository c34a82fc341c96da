#include <fmt/format.h>

#include <utility>

#include "cli/machine.h"

namespace spiritlevel {
namespace {

using cuda::DeviceInfo;
using cuda::GpuError;
using cuda::Layer;
using cuda::LibraryVersions;

// --- The host

std::string Caches(const Machine& machine) {
  std::string text;
  for (const auto& [name, size] :
       {std::pair{"L1", machine.l1}, std::pair{"L2", machine.l2}, std::pair{"L3", machine.l3}}) {
    if (size > 0) text += fmt::format(", {} {}", name, FormatBytes(size));
  }
  return text;
}

Ability CpuKernels(const Machine& machine) {
  const std::string name = machine.processor.empty() ? "this processor" : machine.processor;
  if (!machine.missing_instructions.empty()) {
    return {"CPU kernels", false,
            fmt::format("{} lacks {}, which this build uses", name, machine.missing_instructions),
            "build it on this machine, or with -DSPIRITLEVEL_NATIVE=OFF"};
  }
  return {
      "CPU kernels", true,
      fmt::format("{} with {}{}; {}", name, machine.instructions, Caches(machine), machine.blas),
      ""};
}

Ability Ranks(const Machine& machine) {
  return {"ranks on this machine", machine.cores > 0,
          fmt::format("{} usable core{}, one for each rank that is a thread or a process, and {} "
                      "of memory",
                      machine.cores, machine.cores == 1 ? "" : "s", FormatBytes(machine.memory)),
          machine.cores >= 2 ? "" : "one core runs one rank; more are only emulated"};
}

Ability Mpi(const Machine& machine) {
  if (!machine.has_mpi) {
    return {"ranks over MPI", false, "this build is without MPI",
            "install libopenmpi-dev and build again"};
  }
  if (machine.mpirun.empty()) {
    return {"ranks over MPI", false, "this build has MPI, and there is no mpirun on the path",
            "install openmpi-bin"};
  }
  return {"ranks over MPI", true, "this build has MPI, and there is " + machine.mpirun, ""};
}

// --- CUDA

std::string Version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Ability Toolkit(Layer* layer) {
  if (layer == nullptr) {
    return {"CUDA in this build", false, cuda::WhyNoDevice(nullptr),
            "build where nvcc is on the path or in /usr/local/cuda"};
  }
  const LibraryVersions versions = layer->Versions();
  return {"CUDA in this build", true, "CUDA " + Version(versions.runtime), ""};
}

Ability Products(const LibraryVersions& versions) {
  if (versions.cublas_lt == 0) {
    return {"products on GPUs", false, "cuBLASLt cannot be loaded",
            "install the CUDA toolkit's libcublas, or add its folder to LD_LIBRARY_PATH"};
  }
  return {"products on GPUs", true, fmt::format("cuBLASLt {}", versions.cublas_lt), ""};
}

Ability Nccl(const LibraryVersions& versions) {
  if (versions.nccl == 0) {
    return {"transfers between GPUs", false, "this build is without NCCL, or it cannot be loaded",
            "install libnccl-dev and build again, or add its folder to LD_LIBRARY_PATH"};
  }
  return {"transfers between GPUs", true,
          fmt::format("NCCL {}.{}.{}", versions.nccl / 10'000, versions.nccl / 100 % 100,
                      versions.nccl % 100),
          ""};
}

Ability Cudnn(const LibraryVersions& versions) {
  if (versions.cudnn == 0) {
    return {"cuDNN's attention", false, "this build is without cuDNN; our own kernel computes it",
            ""};
  }
  return {"cuDNN's attention", true,
          fmt::format("cuDNN {}.{}.{}", versions.cudnn / 10'000, versions.cudnn / 100 % 100,
                      versions.cudnn % 100),
          ""};
}

Ability Driver(Layer* layer) {
  const LibraryVersions versions = layer->Versions();
  if (versions.driver == 0) {
    return {"CUDA driver", false, "no CUDA driver is installed",
            "install NVIDIA's driver, or give the container its libcuda.so.1"};
  }
  const std::string driver = "the driver is for CUDA " + Version(versions.driver);
  // Within a major version an older driver runs what a newer toolkit built.
  if (versions.driver / 1000 < versions.runtime / 1000) {
    return {"CUDA driver", false, driver + ", this build is of CUDA " + Version(versions.runtime),
            "install a newer driver, or build with an older toolkit"};
  }
  return {"CUDA driver", true, driver, ""};
}

Ability Partitions(Layer* layer, const std::string& name, int device) {
  const std::string part = "SM partitions of " + name;
  try {
    const std::vector<cuda::Partition> halves = layer->Split(device, 2);
    return {part, true,
            fmt::format("green contexts; halves of {} SMs",
                        layer->Multiprocessors(device, halves.front())),
            ""};
  } catch (const GpuError& e) {
    return {part, false, e.what(), "several ranks on one GPU need a driver for CUDA 12.5 or later"};
  }
}

void AddDevice(Layer* layer, int device, std::vector<Ability>* findings) {
  const std::string name = fmt::format("GPU {}", device);
  try {
    const DeviceInfo info = layer->Describe(device);
    const bool known = info.major >= 8;
    const cuda::FreeMemory memory = layer->Memory(device);
    findings->push_back(
        {name, known,
         fmt::format("{} at {}, compute capability {}.{}, {} SMs, {} of memory of which {} are "
                     "free",
                     info.name, info.pci, info.major, info.minor, info.multiprocessors,
                     FormatBytes(memory.total), FormatBytes(memory.free)),
         known ? "" : "kernels are built for compute capability 8.0 and later"});
    findings->push_back({"fp8 products on " + name, info.has_fp8(),
                         fmt::format("compute capability {}.{}{}", info.major, info.minor,
                                     info.has_fp8() ? "" : "; 8.9 and later have them"),
                         ""});
    findings->push_back(Partitions(layer, name, device));
    const cuda::DeviceState state = layer->State(device);
    const bool readable = state.sm_clock_mhz > 0;
    findings->push_back({"clocks of " + name, readable,
                         readable
                             ? fmt::format("SMs at {} MHz, memory at {} MHz, {} degrees{}",
                                           state.sm_clock_mhz, state.memory_clock_mhz,
                                           state.temperature, state.throttled ? ", throttled" : "")
                             : "NVML tells nothing, so measurements cannot be checked by it",
                         readable ? "" : "give the container libnvidia-ml.so.1"});
  } catch (const GpuError& e) {
    findings->push_back({name, false, e.what(), ""});
  }
}

void AddDevices(Layer* layer, std::vector<Ability>* findings) {
  int devices = 0;
  try {
    devices = layer->NumDevices();
  } catch (const GpuError& e) {
    findings->push_back({"GPU", false, e.what(), "see whether nvidia-smi works"});
    return;
  }
  if (devices == 0) {
    findings->push_back({"GPU", false, cuda::WhyNoDevice(layer), "run it where there is one"});
  }
  for (int device = 0; device < devices; ++device) AddDevice(layer, device, findings);
}

}  // namespace

std::vector<Ability> Examine(const Machine& machine, Layer* layer) {
  std::vector<Ability> findings = {CpuKernels(machine), Ranks(machine), Mpi(machine),
                                   Toolkit(layer)};
  if (layer == nullptr) return findings;
  const LibraryVersions versions = layer->Versions();
  for (const auto& finding : {Products(versions), Nccl(versions), Cudnn(versions)}) {
    findings.push_back(finding);
  }
  findings.push_back(Driver(layer));
  AddDevices(layer, &findings);
  return findings;
}

}  // namespace spiritlevel
