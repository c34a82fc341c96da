#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "verify/board.h"
#include "verify/clock.h"
#include "verify/rank_runner.h"
#include "verify/transports.h"

namespace spiritlevel {
namespace {

constexpr int kWatchEveryMs = 10;

// How long a rank may be stopped before the run begins, where no limit is given.
constexpr TimeNs kStopped = 5'000'000'000;

// How long a rank of a run that has failed may go on with what it is in.
constexpr TimeNs kGrace = 1'000'000'000;

// The ranks' processes. What a child holds of its pipe is closed by the system whenever and however
// it ends, and that is how its end is noticed.
class Children {
 public:
  Children(const RunSetting& setting, Board& board) : setting_(setting), board_(board) {}
  ~Children() {
    for (Child& child : children_) End(child);
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void Start() {
    std::fflush(nullptr);
    for (int index = 0; index < setting_.num_indices(); ++index) StartOne(index);
  }

  // Until something ends, or it is time to look round.
  void Wait() {
    std::vector<pollfd> ends;
    for (const Child& child : children_) {
      ends.push_back({.fd = child.is_running ? child.pipe : -1, .events = POLLIN, .revents = 0});
    }
    if (::poll(ends.data(), ends.size(), kWatchEveryMs) <= 0) return;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].revents != 0) Reap(children_[i]);
    }
  }

  // A rank's process that somebody has stopped before the run began: nobody waits in a node yet, by
  // which it would be noticed.
  void NoteStopped(TimeNs limit) {
    for (Child& child : children_) {
      if (!child.is_running) continue;
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(child.id), &info, WSTOPPED | WCONTINUED | WNOHANG) !=
              0 ||
          info.si_pid == 0) {
        // Nothing has changed.
      } else {
        child.stopped_since = info.si_code == CLD_CONTINUED ? 0 : Now();
      }
      if (child.stopped_since != 0 && Now() - child.stopped_since > limit) {
        board_.StoppedInSetup(child.index);
      }
    }
  }

  void KillAll() {
    were_killed_ = true;
    for (const Child& child : children_) {
      if (child.is_running) ::kill(child.id, SIGKILL);
    }
  }

 private:
  struct Child {
    int index = 0;
    pid_t id = -1;
    int pipe = -1;
    bool is_running = false;
    TimeNs stopped_since = 0;  // 0: it is not
  };

  void StartOne(int index) {
    int ends[2] = {-1, -1};
    const pid_t parent = ::getpid();
    pid_t id = -1;
    if (::pipe(ends) == 0) id = ::fork();
    if (id == 0) RunChild(index, parent, ends[0]);
    if (id < 0) {
      board_.Fail(index, FailureKind::kInternal, kNone,
                  fmt::format("its process could not be started: {}", ::strerror(errno)));
      board_.Ended(index, "could not be started");
      if (ends[0] >= 0) ::close(ends[0]);
    } else {
      children_.push_back({.index = index, .id = id, .pipe = ends[0], .is_running = true});
    }
    // Held open by nobody but the child.
    if (ends[1] >= 0) ::close(ends[1]);
  }

  [[noreturn]] void RunChild(int index, pid_t parent, int read_end) {
    ::close(read_end);
    for (const Child& other : children_) ::close(other.pipe);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    board_.BelongsTo(index);
    const int ranks = setting_.plan.program().num_ranks();
    {
      BoardExchange exchange(board_, index);
      RankRunner({.plan = setting_.plan,
                  .routes = setting_.routes,
                  .make_work = setting_.make_work,
                  .options = setting_.options,
                  .rank = index % ranks,
                  .replica = index / ranks},
                 exchange)
          .Run();
    }
    std::fflush(nullptr);
    ::_exit(0);
  }

  void Reap(Child& child) {
    int status = 0;
    while (::waitpid(child.id, &status, 0) < 0 && errno == EINTR) {
    }
    child.is_running = false;
    ::close(child.pipe);
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                : fmt::format("exited with status {}", WEXITSTATUS(status));
    // Of a run that has failed the others leave by themselves.
    board_.Ended(child.index, how, were_killed_ || !WIFSIGNALED(status));
  }

  void End(Child& child) {
    if (!child.is_running) return;
    ::kill(child.id, SIGKILL);
    Reap(child);
  }

  const RunSetting& setting_;
  Board& board_;
  std::vector<Child> children_;
  bool were_killed_ = false;
};

}  // namespace

RunReport RunProcesses(const RunSetting& setting) {
  Board board(setting.plan, setting.routes, setting.options, setting.patience);
  Children children(setting, board);
  children.Start();
  TimeNs failed_at = 0;
  const auto note_failure = [&] {
    if (failed_at != 0) return;
    const std::optional<Failure> failure = board.failure();
    if (!failure) return;
    failed_at = Now();
    if (setting.options.on_failure) setting.options.on_failure(*failure);
  };
  while (!board.AllHaveEnded()) {
    board.Watch();
    children.NoteStopped(setting.options.stall_limit.value_or(kStopped));
    note_failure();
    if (failed_at != 0 && Now() - failed_at > kGrace) children.KillAll();
    children.Wait();
  }
  board.Watch();
  note_failure();
  return board.Report();
}

}  // namespace spiritlevel
