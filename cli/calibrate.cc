#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "calibrate/calibration.h"
#include "calibrate/cpu_device.h"
#include "calibrate/cuda_calibration.h"
#include "calibrate/gpu_plan.h"
#include "calibrate/profile_file.h"
#include "calibrate/table.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "kernels/cuda/layer.h"
#include "models/hf_config.h"

namespace spiritlevel {
namespace {

// One line, rewritten; nothing where standard error is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(double seconds) : seconds_(seconds) {}
  ~ProgressLine() {
    if (shown_) Warn("\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(int done, int total, const std::string& what) {
    if (::isatty(STDERR_FILENO) == 0) return;
    shown_ = true;
    const double spent =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    Warn(fmt::format("\r\033[K{:.0f} of at most {:.0f} s, {} of {}: {}", spent, seconds_, done,
                     total, what.substr(0, 60)));
  }

 private:
  double seconds_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct CalibrateCommand {
  std::string backend = "cpu";
  std::string output;
  double seconds = 0;
  bool quick = false;
  // Of a GPU only.
  std::optional<int> device;
  std::optional<int> partitions;
  std::optional<std::string> model;
  std::optional<int64_t> sequence;
  std::optional<int64_t> micro_batch;

  void Run() const {
    CheckBackend();
    const double limit = Seconds();
    const ProfileFormat format = output == "-" ? ProfileFormat::kText : ProfileFormatOf(output);
    CheckOutput();
    const Calibration calibration = Measured(limit);
    WriteOutput(output, ProfileText(calibration, format), /*inputs=*/{});
    Warn(CalibrationWarnings(calibration));
    if (output == "-") return;
    Print(CalibrationTable(calibration));
    Print(fmt::format(
        "Wrote {0}\n"
        "To use it: spiritlevel compare scenarios/tinyllama-p4-m16.textproto --profile {0}\n",
        output));
  }

  bool on_gpu() const { return backend == "cuda"; }

  void CheckBackend() const {
    if (backend != "cpu" && !on_gpu()) {
      throw InputError(fmt::format("--backend: there is no backend \"{}\"", backend),
                       "there are cpu and cuda");
    }
    const std::pair<const char*, bool> of_gpu[] = {{"--device", device.has_value()},
                                                   {"--partitions", partitions.has_value()},
                                                   {"--model", model.has_value()}};
    for (const auto& [flag, given] : of_gpu) {
      if (!given || on_gpu()) continue;
      throw InputError(fmt::format("{} is of --backend cuda", flag),
                       "add --backend cuda, or leave it out");
    }
    for (const auto& [flag, size] :
         {std::pair{"--sequence", sequence}, std::pair{"--micro-batch", micro_batch}}) {
      if (!size) continue;
      if (!model) {
        throw InputError(fmt::format("{} is of --model, which is not there", flag),
                         "add --model config.json, or leave it out");
      }
      if (*size < 1) {
        throw InputError(fmt::format("{}: {} is not 1 or more", flag, *size),
                         "give the size of a run, or leave it out");
      }
    }
    if (partitions && *partitions < 1) {
      throw InputError(fmt::format("--partitions: {} is not 1 or more", *partitions),
                       "leave it out for a rank that has the whole device");
    }
  }

  // Nobody should hear of a misspelt folder after most of a minute.
  void CheckOutput() const {
    const std::filesystem::path folder = std::filesystem::path(output).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      throw InputError(fmt::format("--output: {}: there is no such folder", folder.string()),
                       "make it first, or write to another place");
    }
    try {
      CheckOutputs({{"--output", output}}, /*inputs=*/{});
    } catch (const InputError& error) {
      throw error.At("--output");
    }
  }

  double Seconds() const {
    constexpr double kMost = 3'600;
    if (seconds == 0) return quick ? UsualQuick() : Usual();
    if (seconds > 0 && seconds <= kMost) return seconds;
    throw InputError(fmt::format("--seconds: {} is not above 0 and at most {}", seconds, kMost),
                     fmt::format("leave it out for {}, or {} with --quick", Usual(), UsualQuick()));
  }
  // Of a GPU more is measured, and a model's shapes have to be done in 3 minutes.
  double Usual() const { return on_gpu() ? 150 : 45; }
  double UsualQuick() const { return on_gpu() ? 60 : 12; }

  Calibration Measured(double limit) const {
    const OnInterrupt on_interrupt;
    ProgressLine progress(limit);
    CalibrationOptions options{.seconds = limit, .quick = quick, .stop = &interrupted};
    const CalibrationObserver show = [&](int done, int total, const std::string& what) {
      progress.Show(done, total, what);
    };
    try {
      if (on_gpu()) return OnGpu(std::move(options), show);
      const std::unique_ptr<Device> cpu = MakeCpuDevice(ColdBytes(DescribeMachine()));
      return Calibrate(*cpu, options, show);
    } catch (const InputError& error) {
      if (!interrupted) throw;
      throw InputError("stopped: " + error.problem() + "; nothing was written", error.way_out());
    }
  }

  Calibration OnGpu(CalibrationOptions options, const CalibrationObserver& show) const {
    if (model) options.plan = PlanOfModel();
    const std::unique_ptr<cuda::Layer> layer = cuda::MakeCudaLayer();
    return CalibrateCuda(layer.get(),
                         {.device = device.value_or(0), .partitions = partitions.value_or(1)},
                         std::move(options), show);
  }

  std::vector<PlannedWork> PlanOfModel() const {
    try {
      const Architecture architecture = LoadHfConfig(*model);
      constexpr int64_t kUsual = 4096;
      const int64_t longest = architecture.max_positions;
      const BlockShape shape{
          .sequence = sequence.value_or(longest > 0 ? std::min(kUsual, longest) : kUsual),
          .micro_batch = micro_batch.value_or(1)};
      CheckShape(architecture, shape);
      return MakeGpuPlan(architecture, shape);
    } catch (const InputError& error) {
      if (!error.way_out().empty()) throw error.At("--model");
      throw InputError("--model: " + error.problem(), "give the path of a model's config.json");
    }
  }
};

}  // namespace

void AddCalibrate(CLI::App& app) {
  const auto command = std::make_shared<CalibrateCommand>();
  CLI::App* sub = app.add_subcommand("calibrate", "Time a device's kernels; write a profile");
  sub->add_option("--backend", command->backend, "What computes: cpu or cuda")
      ->capture_default_str();
  sub->add_option("-o,--output", command->output,
                  "Profile to write: .textproto or .json (- for text on stdout)")
      ->required();
  sub->add_option("--seconds", command->seconds,
                  "Time it may take (default 45, with --quick 12; of a GPU 150 and 60)");
  sub->add_flag("--quick", command->quick, "Fewer shapes");
  sub->add_option("--device", command->device, "Which GPU (default: 0)");
  sub->add_option("--partitions", command->partitions,
                  "Parts of the GPU's SMs, of which a rank has one (default: 1)");
  sub->add_option("--model", command->model,
                  "config.json of a model: measure its kernels' shapes (default: a general sweep)");
  sub->add_option("--sequence", command->sequence, "Tokens in a sequence of it (default: 4096)");
  sub->add_option("--micro-batch", command->micro_batch,
                  "Sequences in a micro-batch of it (default: 1)");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
