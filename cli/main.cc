// spiritlevel: one binary, a subcommand for each task.
//
// Exit status: 0 done; 1 a gate says no, or a run that was verified is wrong; 130 a verification
// was interrupted; 2 the input is wrong, and the message says where and what would be right; 70 we
// are wrong, and the message names the invariant.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "base/words.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace {

constexpr int kInputError = 2;
constexpr int kInternalError = 70;

// CLI11 only says that a subcommand is required; say which word was none, and which there are.
void RefuseUnknownCommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == argv[1]) return;
    names.push_back(sub->get_name());
  }
  throw spiritlevel::InputError(fmt::format("there is no command \"{}\"", argv[1]),
                                fmt::format("there are {}", fmt::join(names, ", ")));
}

// As it can be typed again: without the place of the program, quoted where a shell needs it.
std::string CommandLine(int argc, char** argv) {
  std::string line = "spiritlevel";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                            "0123456789-_=+,./:@%") == std::string::npos;
    if (plain) {
      line += ' ' + word;
      continue;
    }
    line += " '";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

// "--trace" of "--trace=FILE".
std::string FlagOf(const std::string& word) { return word.substr(0, word.find('=')); }

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string OwnersOf(const CLI::App& app, const std::string& flag) {
  std::vector<std::string> owners;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::vector<std::string> flags = FlagsOf(*sub);
    if (std::find(flags.begin(), flags.end(), flag) != flags.end()) {
      owners.push_back(sub->get_name());
    }
  }
  return fmt::format("{}", fmt::join(owners, ", "));
}

std::string NearestFlag(const CLI::App& command, const std::string& flag) {
  std::vector<std::string> flags = FlagsOf(command);
  const auto nearer = [&](const std::string& a, const std::string& b) {
    return spiritlevel::EditDistance(flag, a) < spiritlevel::EditDistance(flag, b);
  };
  return *std::min_element(flags.begin(), flags.end(), nearer);  // every command has --help
}

// What CLI11 found no place for: the first flag among it, or the first word.
spiritlevel::InputError Unexpected(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  const std::string help = fmt::format("`spiritlevel {}--help` lists the options",
                                       chosen.empty() ? "" : command.get_name() + " ");
  const auto flag = std::find_if(extras.begin(), extras.end(), [](const std::string& word) {
    return word.size() > 1 && word.starts_with('-');
  });
  if (flag == extras.end()) {
    return spiritlevel::InputError(
        fmt::format("{}: \"{}\" is one word too many", command.get_name(),
                    extras.empty() ? "" : extras.front()),
        help);
  }
  const std::string name = FlagOf(*flag);
  if (const std::string owners = OwnersOf(app, name); !owners.empty()) {
    return spiritlevel::InputError(
        fmt::format("{}: {} belongs to {}", command.get_name(), name, owners), help);
  }
  return spiritlevel::InputError(
      fmt::format("{}: there is no {}", command.get_name(), name),
      fmt::format("did you mean {}? {}", NearestFlag(command, name), help));
}

int Run(int argc, char** argv) {
  CLI::App app{
      "Spiritlevel reads the bubble of a training pipeline before anybody rents the GPUs:\n"
      "it plays pipeline schedules out event by event and says what each costs in time and\n"
      "memory, and why."};
  app.name("spiritlevel");
  app.set_version_flag("--version", "spiritlevel " SPIRITLEVEL_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  const std::string command_line = CommandLine(argc, argv);
  spiritlevel::AddCompare(app, command_line);
  spiritlevel::AddSimulate(app, command_line);
  spiritlevel::AddSchedules(app);
  spiritlevel::AddCheck(app);
  spiritlevel::AddExport(app);
  spiritlevel::AddModel(app);
  spiritlevel::AddCalibrate(app);
  spiritlevel::AddSearch(app);
  spiritlevel::AddGate(app);
  spiritlevel::AddFrontier(app);
  spiritlevel::AddVerify(app, command_line);
  spiritlevel::AddDoctor(app);
  RefuseUnknownCommand(app, argc, argv);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text, text);
    spiritlevel::Print(text.str());
    return 0;
  } catch (const CLI::RuntimeError& e) {  // a command that ran, and whose answer is no
    return e.get_exit_code();
  } catch (const CLI::ExtrasError&) {
    throw Unexpected(app);
  } catch (const CLI::ParseError& e) {
    std::ostringstream text;
    app.exit(e, text, text);
    spiritlevel::Warn(spiritlevel::Printable(text.str()));
    return kInputError;
  }
}

}  // namespace

namespace {

int RunAndReport(int argc, char** argv) {
  // A run takes and drops arrays of many megabytes. Given back to the system each time, their pages
  // would have to be cleared again for the next; that took a third of a large run.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  try {
    return Run(argc, argv);
  } catch (const spiritlevel::InputError& e) {
    spiritlevel::Warn(spiritlevel::Printable(e.what()) + "\n");
    return kInputError;
  } catch (const std::bad_alloc&) {
    spiritlevel::Warn(
        "not enough memory for a run of this size\n    use fewer ranks, micro-batches "
        "or iterations\n");
    return kInputError;
  } catch (const std::exception& e) {
    spiritlevel::Warn(
        fmt::format("internal error: {}\n    this is a defect of spiritlevel, not of "
                    "your input; please report it with the scenario\n",
                    e.what()));
    return kInternalError;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int status = RunAndReport(argc, argv);
  // OpenBLAS ends its threads in the end of the process, and waits for ever for those that it could
  // not start where memory is limited. All that we write is written by now.
  std::fflush(nullptr);
#ifndef SPIRITLEVEL_LEAVES_BY_EXIT  // where leaks are looked for at the end
  ::_exit(status);
#endif
  return status;
}
