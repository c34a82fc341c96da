#include "cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "base/check.h"
#include "base/file.h"

namespace spiritlevel {

void Print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  throw InputError(fmt::format("standard output: cannot write: {}", std::strerror(errno)));
}

namespace {

void RefuseInputs(const std::string& path, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (input.empty() || !AreOneOutput(path, input)) continue;
    throw InputError(fmt::format("{}: is read by this command, and would be written over", path),
                     "name another file");
  }
}

std::filesystem::path PlaceOf(const std::string& path) {
  return path == "-" ? "/dev/stdout" : path;
}

}  // namespace

void WriteOutput(const std::string& path, std::string_view text,
                 const std::vector<std::string>& inputs) {
  if (path == "-") return Print(text);
  RefuseInputs(path, inputs);
  WriteFile(path, text);
}

bool TakesStandardOutput(const std::vector<NamedOutput>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(),
                     [](const NamedOutput& output) { return output.path == "-"; });
}

void CheckOutputs(const std::vector<NamedOutput>& outputs, const std::vector<std::string>& inputs) {
  std::vector<NamedOutput> given;
  for (const NamedOutput& output : outputs) {
    if (!output.path) continue;
    for (const NamedOutput& other : given) {
      if (!AreOneOutput(PlaceOf(*output.path), PlaceOf(*other.path))) continue;
      throw InputError(
          fmt::format("{}: {} is where {} goes too", output.flag, *output.path, other.flag),
          "name another file for one of the two");
    }
    given.push_back(output);
  }
  for (const NamedOutput& output : given) {
    if (*output.path == "-") continue;
    RefuseInputs(*output.path, inputs);
    CheckWritable(*output.path);
  }
}

void Warn(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

int OutputWidth() {
  constexpr int kDefault = 100;
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0) return kDefault;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return std::clamp<int>(size.ws_col, 40, 400);
}

bool OutputTakesColour() {
  return ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

struct Progress::State {
  using Clock = std::chrono::steady_clock;

  int steps;
  int done = 0;
  bool shown = false;
  bool terminal = ::isatty(STDERR_FILENO) != 0;
  Clock::time_point begin = Clock::now();
  std::mutex mutex{};
};

Progress::Progress(int steps) : state_(new State{.steps = steps}) {}

Progress::~Progress() {
  if (state_->shown) Warn("\r\033[K");
  delete state_;
}

void Progress::Done() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  ++state_->done;
  const auto spent = State::Clock::now() - state_->begin;
  if (!state_->terminal || spent < std::chrono::milliseconds(500)) return;
  state_->shown = true;
  Warn(fmt::format("\r\033[Kplayed {} of {} schedules", state_->done, state_->steps));
}

}  // namespace spiritlevel
