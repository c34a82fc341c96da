#include "tests/house/readme_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spiritlevel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CommandsIn, FindsWhatFencedBlocksTellTheReaderToType) {
  const Commands commands = CommandsIn(
      "Run `./nothing` or spiritlevel nonsense.\n"
      "```sh\n"
      "./quickstart\n"
      "$ ./run_tests --quick   # ./not_this --nor-this\n"
      "build/quickstart/cli/spiritlevel compare scenarios/a.textproto --json=x.json\n"
      "spiritlevel simulate \\\n"
      "    scenarios/b.textproto --schedule zb-h1 --chart\n"
      "```\n"
      "spiritlevel nonsense\n"
      "```\n"
      "zb-h1   1.2 s   --\n"
      "```\n");
  EXPECT_THAT(commands.programs, ElementsAre("quickstart", "run_tests"));
  EXPECT_THAT(commands.subcommands, ElementsAre("compare", "simulate"));
  EXPECT_THAT(commands.flags, ElementsAre("--chart", "--json", "--schedule"));
  EXPECT_THAT(commands.scenarios, ElementsAre("scenarios/a.textproto", "scenarios/b.textproto"));
}

TEST(CommandsIn, FindsNothingInProse) {
  const Commands commands = CommandsIn("Call ./run_tests, then\nspiritlevel compare.\n");
  EXPECT_THAT(commands.programs, IsEmpty());
  EXPECT_THAT(commands.subcommands, IsEmpty());
}

}  // namespace
}  // namespace spiritlevel
