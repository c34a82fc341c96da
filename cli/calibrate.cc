#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/units.h"
#include "calibrate/calibration.h"
#include "calibrate/cpu_device.h"
#include "calibrate/profile_file.h"
#include "calibrate/table.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"

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

  void CheckBackend() const {
    if (backend == "cpu") return;
    if (backend == "cuda") {
      throw InputError("--backend cuda: this program was built without the CUDA backend",
                       "use --backend cpu");
    }
    throw InputError(fmt::format("--backend: there is no backend \"{}\"", backend), "there is cpu");
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
    constexpr double kDefault = 45;
    constexpr double kQuick = 12;
    constexpr double kMost = 3'600;
    if (seconds == 0) return quick ? kQuick : kDefault;
    if (seconds > 0 && seconds <= kMost) return seconds;
    throw InputError(fmt::format("--seconds: {} is not above 0 and at most {}", seconds, kMost),
                     "leave it out for 45, or 12 with --quick");
  }

  Calibration Measured(double limit) const {
    const OnInterrupt on_interrupt;
    ProgressLine progress(limit);
    const std::unique_ptr<Device> device = MakeCpuDevice(ColdBytes(DescribeMachine()));
    try {
      return Calibrate(
          *device, {.seconds = limit, .quick = quick, .stop = &interrupted},
          [&](int done, int total, const std::string& what) { progress.Show(done, total, what); });
    } catch (const InputError& error) {
      if (!interrupted) throw;
      throw InputError("stopped: " + error.problem() + "; nothing was written", error.way_out());
    }
  }
};

}  // namespace

void AddCalibrate(CLI::App& app) {
  const auto command = std::make_shared<CalibrateCommand>();
  CLI::App* sub = app.add_subcommand("calibrate", "Time this machine's kernels; write a profile");
  sub->add_option("--backend", command->backend, "What computes: cpu")->capture_default_str();
  sub->add_option("-o,--output", command->output,
                  "Profile to write: .textproto or .json (- for text on stdout)")
      ->required();
  sub->add_option("--seconds", command->seconds, "Time it may take (default 45, with --quick 12)");
  sub->add_flag("--quick", command->quick, "Fewer shapes");
  sub->callback([command] { command->Run(); });
}

}  // namespace spiritlevel
