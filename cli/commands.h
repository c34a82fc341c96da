// The subcommands. Each adds its options to the app and runs when it is the one chosen; errors are
// thrown and end in main().
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace spiritlevel {

// `command_line` is what a page says that it was made with.
void AddCompare(CLI::App& app, const std::string& command_line);
void AddSimulate(CLI::App& app, const std::string& command_line);
void AddCheck(CLI::App& app);
void AddExport(CLI::App& app);
void AddModel(CLI::App& app);
void AddCalibrate(CLI::App& app);
void AddSchedules(CLI::App& app);
void AddSearch(CLI::App& app);
void AddGate(CLI::App& app);
void AddFrontier(CLI::App& app);
void AddVerify(CLI::App& app, const std::string& command_line);
void AddDoctor(CLI::App& app);

}  // namespace spiritlevel
