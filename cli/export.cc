#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/export_flags.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/profile.h"
#include "report/torch_comms_csv.h"
#include "report/torch_csv.h"

namespace spiritlevel {
namespace {

struct ExportCommand {
  ScenarioOptions scenario;
  ScheduleFlags schedules;
  CommsFlags comms;
  std::string format = "torch-csv";
  std::string output;

  void Run() const {
    if (format != "torch-csv" && format != "torch-comms-csv") {
      throw InputError(fmt::format("--format: there is no format \"{}\"", format),
                       "there is torch-csv, torch-comms-csv");
    }
    comms.RefuseIdle(WritesComms(), "add --format torch-comms-csv, or leave it out");
    const ScheduleChoice choice = schedules.LoadOne();
    // Most orders do not depend on what their passes cost.
    const bool hangs_on_costs = choice.info != nullptr && choice.info->hangs_on_costs();
    const LoadedScenario from =
        hangs_on_costs || !scenario.profile.empty() ? scenario.Load() : WithoutProfile();
    const Scenario& loaded = from.scenario;
    const std::vector<std::string> inputs = InputFiles(from, schedules);
    CheckOutputs({{"--output", output}}, inputs);
    const Schedule schedule = MakeNamed(loaded, choice);
    const std::string csv = AsCsv(choice, schedule);
    if (output != "-") {
      Print(DescribeTorchPlacement(
          schedule, WritesComms() ? TorchForm::kComputeComms : TorchForm::kComputeOnly));
    }
    WriteOutput(output, csv, inputs);
  }

 private:
  bool WritesComms() const { return format == "torch-comms-csv"; }

  LoadedScenario WithoutProfile() const {
    LoadedScenario loaded{.scenario = scenario.LoadWithoutProfile(), .provenance = {}};
    loaded.files = FilesOf(loaded.scenario, scenario.file);
    return loaded;
  }

  static Schedule MakeNamed(const Scenario& loaded, const ScheduleChoice& choice) {
    ThrowIfItCannotRun(loaded, choice, {});
    return MakeSchedule(loaded, choice);
  }

  std::string AsCsv(const ScheduleChoice& choice, const Schedule& schedule) const {
    try {
      return WritesComms() ? ToTorchCommsCsv(schedule, comms.Options()) : ToTorchCsv(schedule);
    } catch (const InputError& error) {
      throw error.At(choice.name);
    }
  }
};

}  // namespace

void AddExport(CLI::App& app) {
  const auto command = std::make_shared<ExportCommand>();
  CLI::App* sub = app.add_subcommand("export", "Write a schedule for another program to run");
  command->scenario.AddTo(*sub);
  command->schedules.AddTo(*sub, /*many=*/false);
  command->scenario.AddProfileTo(*sub);
  sub->add_option("--format", command->format,
                  "For PyTorch: torch-csv (compute only), or torch-comms-csv (sends and receives "
                  "included)")
      ->capture_default_str();
  command->comms.AddTo(*sub);
  sub->add_option("-o,--output", command->output, "File to write (- for stdout)")->required();
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
