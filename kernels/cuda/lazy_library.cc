#include "kernels/cuda/lazy_library.h"

#include <dlfcn.h>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

void* LazyLibrary::Address(const char* name) {
  const std::lock_guard lock(mutex_);
  for (const std::string& place : {soname_, file_}) {
    if (library_ == nullptr) library_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  void* const address = library_ == nullptr ? nullptr : dlsym(library_, name);
  if (address != nullptr) return address;
  const char* const why = dlerror();
  throw GpuError(GpuErrorKind::kUnsupported, name,
                 soname_ + " cannot be loaded: " + (why == nullptr ? "unknown" : why));
}

}  // namespace spiritlevel::cuda
