#include "cli/export_flags.h"

#include <fmt/format.h>

#include "base/check.h"

namespace spiritlevel {

void CommsFlags::AddTo(CLI::App& command) {
  command.add_flag("--no-reduce-grad", no_reduce_grad,
                   "With sends and receives: no REDUCE_GRAD, which PyTorch before late 2025 does "
                   "not know");
  command.add_flag(
      "--shards", shards,
      "With sends and receives: UNSHARD and RESHARD, which stages sharded by FSDP need");
}

void CommsFlags::RefuseIdle(bool writes_comms, const std::string& way_out) const {
  if (writes_comms || (!no_reduce_grad && !shards)) return;
  throw InputError(fmt::format("{}: is of files with sends and receives only",
                               no_reduce_grad ? "--no-reduce-grad" : "--shards"),
                   way_out);
}

}  // namespace spiritlevel
