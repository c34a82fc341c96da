#include "tests/house/include_rules.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace spiritlevel {
namespace {

using Names = std::set<std::string, std::less<>>;

// DESIGN.md, "Folders, and who may include whom". Beside these each folder may include itself and
// base/.
const std::map<std::string, Names, std::less<>>& FolderArrows() {
  static const auto* const arrows = new std::map<std::string, Names, std::less<>>{
      {"base", {}},
      {"sim", {}},
      {"models", {"sim"}},
      {"kernels", {}},
      {"calibrate", {"kernels", "models", "proto"}},
      {"verify", {"kernels", "sim", "models"}},
      {"report", {"sim", "models", "proto"}},
      {"scenarios", {"models", "sim", "proto"}},
      {"cli", {"sim", "models", "kernels", "calibrate", "verify", "report", "scenarios", "proto"}},
      {"proto", {}},
      {"tests",
       {"sim", "models", "kernels", "calibrate", "verify", "report", "scenarios", "cli", "proto",
        "bench"}},
      {"bench",
       {"sim", "models", "kernels", "calibrate", "verify", "report", "scenarios", "cli", "proto",
        "tests"}},
  };
  return *arrows;
}

// Inside sim/ the arrows are finer, and these are the three promises: what generates a schedule,
// what plays it out and what judges it share no code.
struct InnerRule {
  std::string_view of;                    // paths that start so
  std::vector<std::string_view> except;   // but not so
  std::vector<std::string_view> refused;  // may not include what starts so
  std::string_view why;
};

const std::vector<InnerRule>& InnerRules() {
  static const auto* const rules = new std::vector<InnerRule>{
      {"sim/",
       {"sim/schedules/", "sim/search/", "sim/analysis/"},
       {"sim/schedules/", "sim/search/", "sim/analysis/"},
       "lowering and engines know no generator and no analysis"},
      {"sim/schedules/catalog.",
       {},
       {"sim/program.h", "sim/engine", "sim/event", "sim/timeline.h", "sim/evaluate.h",
        "sim/analysis/"},
       "the catalog lists generators, automatic ones included, and plays none"},
      {"sim/schedules/",
       {"sim/schedules/catalog."},
       {"sim/program.h", "sim/engine", "sim/event", "sim/timeline.h", "sim/evaluate.h",
        "sim/analysis/", "sim/search/"},
       "a generator makes flat orders and never looks at what becomes of them"},
      {"sim/analysis/check_",
       {},
       {"sim/schedule.h", "sim/program.h", "sim/engine", "sim/event_queue.h", "sim/evaluate.h",
        "sim/timeline.h", "sim/schedules/", "sim/search/"},
       "the checker shares no code with what it judges"},
  };
  return *rules;
}

// Other people's libraries, told by how their headers are named, and who may include them.
struct Library {
  std::string_view headers;
  std::vector<std::string_view> allowed;  // paths that start so; empty: everybody
};

const std::vector<Library>& Libraries() {
  static const auto* const libraries = new std::vector<Library>{
      {"fmt/", {}},
      // In the checker and in tests, never in the engine.
      {"boost/", {"sim/analysis/", "tests/", "bench/"}},
      {"google/protobuf/", {"scenarios/", "report/", "calibrate/", "cli/", "tests/"}},
      {"nlohmann/",
       {"models/", "scenarios/", "report/", "calibrate/", "verify/", "cli/", "tests/", "bench/"}},
      {"CLI/", {"cli/", "tests/"}},
      {"Eigen/", {"calibrate/", "models/", "tests/"}},
      {"gtest/", {"tests/"}},
      {"gmock/", {"tests/"}},
      {"benchmark/", {"bench/"}},
  };
  return *libraries;
}

bool StartsWithAny(std::string_view text, const std::vector<std::string_view>& starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](std::string_view start) { return text.starts_with(start); });
}

std::string FolderOf(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

// What protoc makes of proto/NAME.proto is in no tree.
bool IsGenerated(std::string_view path) {
  return path.starts_with("proto/") && path.ends_with(".pb.h");
}

// The reason why `path` may not include `header`, or nothing.
std::string WhyNotOurs(std::string_view path, std::string_view header, const Names& all_paths) {
  const std::string to = FolderOf(header);
  if (!FolderArrows().contains(to)) return "write it from the root, as \"base/check.h\"";
  if (!IsGenerated(header) && !all_paths.contains(header)) return "there is no such file";
  const std::string from = FolderOf(path);
  const Names& arrows = FolderArrows().find(from)->second;
  if (to != from && to != "base" && !arrows.contains(to)) {
    return from + "/ may not include " + to + "/";
  }
  for (const InnerRule& rule : InnerRules()) {
    if (!path.starts_with(rule.of) || StartsWithAny(path, rule.except)) continue;
    if (StartsWithAny(header, rule.refused)) return std::string(rule.why);
  }
  return "";
}

std::string WhyNotTheirs(std::string_view path, std::string_view header) {
  for (const Library& library : Libraries()) {
    if (!header.starts_with(library.headers) || library.allowed.empty()) continue;
    if (!StartsWithAny(path, library.allowed)) {
      return FolderOf(path) + "/ may not include " + std::string(library.headers) + " here";
    }
  }
  // Only the delimiters differ; the arrow is the same.
  if (FolderArrows().contains(FolderOf(header))) return "ours are included with quotes";
  return "";
}

struct Include {
  std::string header;
  bool quoted = false;
};

void DropSpaces(std::string_view* text) {
  const size_t begin = text->find_first_not_of(" \t");
  text->remove_prefix(begin == std::string_view::npos ? text->size() : begin);
}

bool Drop(std::string_view start, std::string_view* text) {
  if (!text->starts_with(start)) return false;
  text->remove_prefix(start.size());
  DropSpaces(text);
  return true;
}

std::optional<Include> IncludeOn(std::string_view line) {
  DropSpaces(&line);
  if (!Drop("#", &line) || !Drop("include", &line) || line.empty()) return std::nullopt;
  const bool quoted = line.front() == '"';
  if (!quoted && line.front() != '<') return std::nullopt;
  line.remove_prefix(1);
  return Include{std::string(line.substr(0, line.find(quoted ? '"' : '>'))), quoted};
}

void AddBadIncludesOf(const SourceFile& file, const Names& all_paths,
                      std::vector<std::string>* bad) {
  std::istringstream text(file.text);
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    const std::optional<Include> include = IncludeOn(line);
    if (!include) continue;
    const std::string& header = include->header;
    const std::string why = include->quoted ? WhyNotOurs(file.path, header, all_paths)
                                            : WhyNotTheirs(file.path, header);
    if (why.empty()) continue;
    bad->push_back(file.path + ":" + std::to_string(number) + ": \"" + header + "\": " + why);
  }
}

}  // namespace

std::vector<std::string> BadIncludes(const std::vector<SourceFile>& files) {
  Names all_paths;
  for (const SourceFile& file : files) all_paths.insert(file.path);
  std::vector<std::string> bad;
  for (const SourceFile& file : files) {
    if (!FolderArrows().contains(FolderOf(file.path))) {
      bad.push_back(file.path + ": its folder is not in DESIGN.md's table");
      continue;
    }
    AddBadIncludesOf(file, all_paths, &bad);
  }
  return bad;
}

}  // namespace spiritlevel
