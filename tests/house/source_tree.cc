#include "tests/house/source_tree.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace spiritlevel {
namespace {

namespace fs = std::filesystem;

bool IsOurs(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.starts_with(".") || name == "build" || name == "out") return false;
  return !fs::exists(folder / "CMakeCache.txt");  // a build folder of whatever name
}

std::string Contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

std::vector<SourceFile> ReadTree(const fs::path& root, const std::vector<std::string>& extensions) {
  std::vector<SourceFile> files;
  for (auto entry = fs::recursive_directory_iterator(root);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory()) {
      if (!IsOurs(entry->path())) entry.disable_recursion_pending();
      continue;
    }
    const std::string extension = entry->path().extension().string();
    if (std::find(extensions.begin(), extensions.end(), extension) == extensions.end()) continue;
    files.push_back(
        {entry->path().lexically_relative(root).generic_string(), Contents(entry->path())});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace spiritlevel
