// The project's own files, as the house rules see them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace spiritlevel {

struct SourceFile {
  std::string path;  // relative to the root: "sim/op.h"
  std::string text;
};

// All files below `root` whose names end in one of `extensions` (".cc"), by path. Build folders and
// hidden ones are passed over.
std::vector<SourceFile> ReadTree(const std::filesystem::path& root,
                                 const std::vector<std::string>& extensions);

}  // namespace spiritlevel
