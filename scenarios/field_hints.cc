#include "scenarios/field_hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace spiritlevel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Longer than any field of ours; what somebody wrote is cut to it, as the distance takes the
// product of both lengths.
constexpr size_t kLongestName = 64;

// Levenshtein: insertions, deletions and replacements that turn one into the other.
int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

// Case and the separator are matters of taste: "Micro-Batches" is micro_batches.
std::string Normalized(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kLongestName)) {
    if (c != '_' && c != '-' && c != ' ') {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

const FieldDescriptor* Closest(const Descriptor* type, std::string_view name) {
  const std::string wanted = Normalized(name);
  const FieldDescriptor* best = nullptr;
  // A third of the letters wrong is still a slip; more is another word.
  int best_distance = std::max<int>(1, static_cast<int>(wanted.size()) / 3) + 1;
  for (int i = 0; i < type->field_count(); ++i) {
    const int distance = EditDistance(wanted, Normalized(type->field(i)->name()));
    if (distance < best_distance) {
      best = type->field(i);
      best_distance = distance;
    }
  }
  return best;
}

// Where in the file a field of exactly this name may stand, e.g. "costs.uniform".
void FindPlaces(const Descriptor* type, std::string_view name, const std::string& path, int depth,
                std::vector<std::string>* places) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->name() == name) places->push_back(path.empty() ? "the top level" : path);
    if (field->message_type() != nullptr && depth > 0) {
      FindPlaces(field->message_type(), name,
                 path.empty() ? field->name() : path + "." + field->name(), depth - 1, places);
    }
  }
}

// What stands at the top of every Hugging Face config.
bool IsOfAModelsConfig(std::string_view name) {
  return name == "architectures" || name == "model_type" || name == "_name_or_path";
}

}  // namespace

std::string HintForUnknownField(const Descriptor* root, const Descriptor* type,
                                std::string_view name) {
  if (type == root && IsOfAModelsConfig(name)) {
    return "is this a model's config? A scenario names it: model { config: \"config.json\" "
           "sequence_length: 4096 }";
  }
  std::vector<std::string> places;
  FindPlaces(root, name, "", /*depth=*/8, &places);
  const std::string elsewhere = fmt::format("{}", fmt::join(places, " or "));
  const FieldDescriptor* closest = Closest(type, name);
  if (closest != nullptr && !places.empty()) {
    return fmt::format("did you mean {}? ({} belongs in {})", closest->name(), name, elsewhere);
  }
  if (closest != nullptr) return fmt::format("did you mean {}?", closest->name());
  if (!places.empty()) return fmt::format("it belongs in {}", elsewhere);
  std::vector<std::string_view> known;
  for (int i = 0; i < type->field_count(); ++i) known.push_back(type->field(i)->name());
  return fmt::format("the fields here are {}", fmt::join(known, ", "));
}

}  // namespace spiritlevel
