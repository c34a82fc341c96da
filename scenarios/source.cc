#include "scenarios/source.h"

#include <fmt/format.h>

namespace spiritlevel {

std::string Source::At(int line) const {
  return line > 0 ? fmt::format("{}:{}", name, line) : std::string(name);
}

void ReadMessage(const Source& source, google::protobuf::Message* message) {
  if (source.format == ScenarioFormat::kJson) return ReadJsonMessage(source, message);
  ReadTextMessage(source, message);
}

int LineOf(const Source& source, const google::protobuf::Descriptor* type, std::string_view path) {
  return source.format == ScenarioFormat::kJson ? LineOfJson(source, type, path)
                                                : LineOfText(source, type, path);
}

}  // namespace spiritlevel
