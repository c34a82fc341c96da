// Where answers go: standard output, checked, or a file, all or nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spiritlevel {

// Throws InputError when standard output cannot take it (a full disk behind it).
void Print(std::string_view text);

// `path` "-" is standard output. `inputs` are files that were read: none is written over.
void WriteOutput(const std::string& path, std::string_view text,
                 const std::vector<std::string>& inputs);

// Where an option sends what it writes: "--json" and its file, which is none where not given.
struct NamedOutput {
  std::string flag;
  std::optional<std::string> path;
};

// "-": then that is all that stands there, and nothing for people beside it.
bool TakesStandardOutput(const std::vector<NamedOutput>& outputs);

// Before any work is done for them. Throws InputError for an output that is one of `inputs`, two
// that go to the same place, and one that cannot be written.
void CheckOutputs(const std::vector<NamedOutput>& outputs, const std::vector<std::string>& inputs);

// To standard error.
void Warn(std::string_view text);

// Columns of the terminal on standard output; 100 where it is none.
int OutputWidth();
bool OutputTakesColour();

// One line on standard error that says what is being worked on, rewritten in place; nothing where
// that is no terminal, and nothing for work that is over at once.
class Progress {
 public:
  explicit Progress(int steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Done();  // one more step; from any thread

 private:
  struct State;
  State* state_;
};

}  // namespace spiritlevel
