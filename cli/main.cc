// spiritlevel: one binary, a subcommand for each task.
//
// Exit status: 0 done; 2 the input is wrong, and the message says where and what would be right;
// 70 we are wrong, and the message names the invariant.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
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

int Run(int argc, char** argv) {
  CLI::App app{
      "Spiritlevel reads the bubble of a training pipeline before anybody rents the GPUs:\n"
      "it plays pipeline schedules out event by event and says what each costs in time and\n"
      "memory, and why."};
  app.name("spiritlevel");
  app.set_version_flag("--version", "spiritlevel " SPIRITLEVEL_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  spiritlevel::AddCompare(app);
  spiritlevel::AddSimulate(app);
  spiritlevel::AddSchedules(app);
  spiritlevel::AddCheck(app);
  spiritlevel::AddExport(app);
  spiritlevel::AddModel(app);
  spiritlevel::AddCalibrate(app);
  RefuseUnknownCommand(app, argc, argv);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text, text);
    spiritlevel::Print(text.str());
    return 0;
  } catch (const CLI::ParseError& e) {
    std::ostringstream text;
    app.exit(e, text, text);
    spiritlevel::Warn(spiritlevel::Printable(text.str()));
    return kInputError;
  }
}

}  // namespace

int main(int argc, char** argv) {
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
