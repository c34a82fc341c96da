#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel {
namespace {

// That something cannot be done here is an answer, and no failure.
void Run(const std::optional<std::string>& json) {
  const std::vector<NamedOutput> outputs = {{"--json", json}};
  CheckOutputs(outputs, {});
  const std::unique_ptr<cuda::Layer> layer = cuda::MakeCudaLayer();
  const std::vector<Ability> findings = Examine(ReadMachine(), layer.get());
  if (!TakesStandardOutput(outputs)) Print(AbilitiesTable(findings));
  if (json) WriteOutput(*json, AbilitiesJson(findings), {});
}

}  // namespace

void AddDoctor(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "doctor", "Say what this machine can and cannot do, why, and what to do about it");
  const auto json = std::make_shared<std::optional<std::string>>();
  sub->add_option("--json", *json, "Write the findings there, too; - is standard output")
      ->type_name("FILE");
  sub->callback([json] { Run(*json); });
}

}  // namespace spiritlevel
