#include "cli/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/available_memory.h"
#include "base/utf8.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cores.h"
#include "report/text.h"
#include "verify/run.h"

namespace spiritlevel {
namespace {

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return Printable(line.substr(colon + 2));
    }
  }
  return "";
}

Bytes CacheSize(int name) { return std::max(Bytes{0}, Bytes{::sysconf(name)}); }

std::string OnPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path file = std::filesystem::path(folder) / program;
    if (::access(file.c_str(), X_OK) == 0) return file.string();
  }
  return "";
}

}  // namespace

Machine ReadMachine() {
  Machine machine;
  machine.processor = ProcessorName();
  machine.cores = static_cast<int>(cpu::UsableCores().size());
  machine.instructions = cpu::CompiledInstructions();
  machine.missing_instructions = cpu::MissingInstructions();
  machine.blas = cpu::BlasDescription();
  machine.l1 = CacheSize(_SC_LEVEL1_DCACHE_SIZE);
  machine.l2 = CacheSize(_SC_LEVEL2_CACHE_SIZE);
  machine.l3 = CacheSize(_SC_LEVEL3_CACHE_SIZE);
  machine.memory = AvailableMemory();
  machine.has_mpi = HasMpi();
  machine.mpirun = OnPath("mpirun");
  return machine;
}

std::string AbilitiesTable(const std::vector<Ability>& findings) {
  size_t width = 0;
  for (const Ability& finding : findings) width = std::max(width, finding.part.size());
  std::string text;
  for (const Ability& finding : findings) {
    std::string words = finding.what;
    if (!finding.remedy.empty()) words += "; " + finding.remedy;
    text += fmt::format("{:<{}}  {:<6}  {}\n", finding.part, width, finding.can ? "can" : "cannot",
                        Wrap(words, width + 10));
  }
  return text;
}

std::string AbilitiesJson(const std::vector<Ability>& findings) {
  nlohmann::ordered_json json;
  json["format"] = "spiritlevel-doctor-1";
  json["version"] = SPIRITLEVEL_VERSION;
  json["findings"] = nlohmann::ordered_json::array();
  for (const Ability& finding : findings) {
    json["findings"].push_back({{"part", finding.part},
                                {"can", finding.can},
                                {"what", finding.what},
                                {"remedy", finding.remedy}});
  }
  return json.dump(2) + "\n";
}

}  // namespace spiritlevel
