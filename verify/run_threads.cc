#include <system_error>
#include <thread>
#include <vector>

#include "verify/board.h"
#include "verify/rank_runner.h"
#include "verify/transports.h"

namespace spiritlevel {
namespace {

// How often it is looked whether a rank is stuck.
constexpr TimeNs kWatchEvery = 10'000'000;

void RunRank(const RunSetting& setting, Board& board, int index) {
  const int ranks = setting.plan.program().num_ranks();
  bool says_goodbye = false;
  {
    BoardExchange exchange(board, index);
    RankRunner runner({.plan = setting.plan,
                       .routes = setting.routes,
                       .make_work = setting.make_work,
                       .options = setting.options,
                       .rank = index % ranks,
                       .replica = index / ranks},
                      exchange);
    says_goodbye = runner.Run();
  }
  board.Ended(index, says_goodbye ? "has ended" : "died");
}

}  // namespace

RunReport RunThreads(const RunSetting& setting) {
  Board board(setting.plan, setting.routes, setting.options, setting.patience);
  std::vector<std::thread> threads;
  for (int index = 0; index < setting.num_indices(); ++index) {
    try {
      threads.emplace_back(RunRank, std::cref(setting), std::ref(board), index);
    } catch (const std::system_error& error) {
      board.Fail(index, FailureKind::kInternal, kNone, error.what());
      board.Ended(index, "could not be started");
    }
  }
  bool told = false;
  const auto tell = [&] {
    if (told || !setting.options.on_failure) return;
    const std::optional<Failure> failure = board.failure();
    if (!failure) return;
    told = true;
    setting.options.on_failure(*failure);
  };
  while (!board.AllHaveEnded()) {
    board.Watch();
    tell();
    board.WaitForEnd(kWatchEvery);
  }
  board.Watch();
  tell();
  for (std::thread& thread : threads) thread.join();
  return board.Report();
}

}  // namespace spiritlevel
