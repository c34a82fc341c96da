// The manifest and its shards on disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "verify/checkpoint.h"
#include "verify/checkpoint_bytes.h"

namespace spiritlevel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "spiritlevel checkpoint 1";
constexpr std::string_view kShardEnding = ".shard";
constexpr size_t kMostShardBytes = size_t{1} << 36;

std::string Hex(uint64_t number) { return fmt::format("{:016x}", number); }

// Of its contents, so that no shard a manifest names is ever written over by another.
std::string FileOf(const TrainingScalars& scalars, const RankShard& shard) {
  return fmt::format("iteration-{}-rank-{}-{}{}", scalars.iteration, shard.rank,
                     Hex(ChecksumOf(shard.bytes)), kShardEnding);
}

// So that names are on disk before what refers to them, also where the machine goes down.
void SyncFolder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

void RemoveUnnamed(const fs::path& folder, const std::set<std::string>& named) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kShardEnding) && name.starts_with("iteration-") && !named.contains(name)) {
      fs::remove(entry.path(), ignored);
    }
  }
}

// Shards as a manifest lists them.
struct Listed {
  std::string file;
  uint64_t bytes = 0;
  std::string checksum;
};

std::vector<Listed> ReadManifest(const fs::path& path, int64_t* iteration) {
  const Json json = Json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
  std::vector<Listed> listed;
  try {
    if (json.at("format") != kFormat) throw InputError(fmt::format("is not a \"{}\"", kFormat));
    *iteration = json.at("iteration").get<int64_t>();
    for (const Json& shard : json.at("shards")) {
      listed.push_back({.file = shard.at("file").get<std::string>(),
                        .bytes = shard.at("bytes").get<uint64_t>(),
                        .checksum = shard.at("checksum").get<std::string>()});
      if (fs::path(listed.back().file).has_parent_path()) {
        throw InputError("names a shard in another folder");
      }
    }
  } catch (const Json::exception&) {
    throw InputError(path.string() + ": is not the manifest of a checkpoint",
                     "name the folder of one");
  } catch (const InputError& error) {
    throw error.At(path.string());
  }
  if (listed.empty()) throw InputError(path.string() + ": names no shards");
  return listed;
}

std::string ReadShard(const fs::path& path, const Listed& listed) {
  std::string bytes = ReadFile(path, kMostShardBytes);
  if (bytes.size() != listed.bytes || Hex(ChecksumOf(bytes)) != listed.checksum) {
    throw InputError(path.string() + ": its bytes are not those that the manifest names",
                     "resume from another copy of the checkpoint");
  }
  return bytes;
}

}  // namespace

void CommitCheckpoint(const fs::path& folder, const std::vector<RankShard>& shards) {
  std::vector<std::string> parts;
  for (const RankShard& shard : shards) parts.push_back(shard.bytes);
  const TrainingState state = Merge(parts);  // all ranks agree
  std::error_code error;
  fs::create_directories(folder, error);
  std::set<std::string> named;
  Json list = Json::array();
  for (const RankShard& shard : shards) {
    const std::string file = FileOf(state.scalars, shard);
    WriteFile(folder / file, shard.bytes);
    named.insert(file);
    list.push_back({{"rank", shard.rank},
                    {"file", file},
                    {"bytes", shard.bytes.size()},
                    {"checksum", Hex(ChecksumOf(shard.bytes))}});
  }
  SyncFolder(folder);
  const Json manifest = {{"format", kFormat},
                         {"iteration", state.scalars.iteration},
                         {"step", state.scalars.step},
                         {"consumed_samples", state.scalars.consumed_samples},
                         {"shards", std::move(list)}};
  WriteFile(folder / kManifest, manifest.dump(2) + "\n");
  SyncFolder(folder);
  RemoveUnnamed(folder, named);
}

bool HasCheckpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kManifest, ignored);
}

TrainingState LoadCheckpoint(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  int64_t iteration = 0;
  std::vector<std::string> parts;
  for (const Listed& listed : ReadManifest(path, &iteration)) {
    const fs::path file = folder / listed.file;
    parts.push_back(ReadShard(file, listed));
    try {
      const TrainingState part = Unpack(parts.back());
      if (part.scalars.iteration != iteration) throw InputError("is of another iteration");
    } catch (const InputError& error) {
      throw error.At(file.string());
    }
  }
  return Merge(parts);
}

}  // namespace spiritlevel
