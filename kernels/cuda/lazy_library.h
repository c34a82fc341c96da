// A shared library that is loaded when something of it is first called. Only in builds with the
// toolkit.
//
// cuBLASLt and NCCL take a third of a second and 200 MB to load. Linked in the usual way, every
// command of the program would pay that, also those that have nothing to do with a GPU; and none
// would start where the libraries are missing.
#pragma once

#include <mutex>
#include <string>

namespace spiritlevel::cuda {

class LazyLibrary {
 public:
  // `soname` is looked for where the system looks; then `file`, where it was when this was built.
  LazyLibrary(std::string soname, std::string file)
      : soname_(std::move(soname)), file_(std::move(file)) {}

  // The function of that name, of the type of `declared`. Throws GpuError (kUnsupported) where the
  // library or the function is not to be had.
  template <typename Function>
  Function* Find(const char* name, Function* /*declared*/) {
    return reinterpret_cast<Function*>(Address(name));
  }

 private:
  void* Address(const char* name);

  std::string soname_;
  std::string file_;
  std::mutex mutex_;
  void* library_ = nullptr;  // stays loaded: what it started may still run
};

}  // namespace spiritlevel::cuda
