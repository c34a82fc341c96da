// Source: the text of a file that holds one protobuf message, in text format or JSON.
//
// Internal to scenarios/. Knows both syntaxes and no schema: what a message may hold it asks the
// message's descriptor.
#pragma once

#include <string>
#include <string_view>

#include "scenarios/scenario.h"

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf

namespace spiritlevel {

struct Source {
  std::string_view text;
  ScenarioFormat format = ScenarioFormat::kText;
  std::string_view name;  // for errors

  // "FILE:LINE"; "FILE" where line is 0.
  std::string At(int line) const;
};

// Fills `message`, which must be empty. Throws InputError for a syntax error, an unknown or doubled
// field, and a value of the wrong kind, each with its place.
void ReadMessage(const Source& source, google::protobuf::Message* message);

// The line, counted from 1, on which the field at `path` ("costs.table.row[2].forward_us") stands
// in a source that ReadMessage accepted; 0 if it does not stand there. Reads the source once more:
// errors may be slow, so that files without any are fast.
int LineOf(const Source& source, const google::protobuf::Descriptor* type, std::string_view path);

// One for each syntax; the two above choose between them.
void ReadTextMessage(const Source& source, google::protobuf::Message* message);
void ReadJsonMessage(const Source& source, google::protobuf::Message* message);
int LineOfText(const Source& source, const google::protobuf::Descriptor* type,
               std::string_view path);
int LineOfJson(const Source& source, const google::protobuf::Descriptor* type,
               std::string_view path);

// How deep messages may nest; ours nest four deep, and a parser that recurses must not be led to
// the end of its stack.
inline constexpr int kMaxNesting = 100;

}  // namespace spiritlevel
