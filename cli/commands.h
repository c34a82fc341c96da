// The subcommands. Each adds its options to the app and runs when it is the one chosen; errors are
// thrown and end in main().
#pragma once

#include <CLI/CLI.hpp>

namespace spiritlevel {

void AddCompare(CLI::App& app);
void AddSimulate(CLI::App& app);
void AddCheck(CLI::App& app);
void AddExport(CLI::App& app);
void AddModel(CLI::App& app);
void AddCalibrate(CLI::App& app);
void AddSchedules(CLI::App& app);

}  // namespace spiritlevel
