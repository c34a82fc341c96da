#include "cli/commands.h"
#include "cli/output.h"
#include "report/schedules_list.h"

namespace spiritlevel {

void AddSchedules(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "schedules", "List the named schedules with their constraints and formulas");
  sub->callback([] { Print(ListSchedules()); });
}

}  // namespace spiritlevel
