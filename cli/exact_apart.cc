#include "cli/exact_apart.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <iterator>
#include <sstream>
#include <string>

#include "base/check.h"

namespace spiritlevel {
namespace {

using Clock = std::chrono::steady_clock;

// The solver is to be done before it is ended, so that what it knows by then is not lost.
constexpr double kSolversShare = 0.9;
constexpr int kPollMilliseconds = 20;

// The answer as text: what a line says, then the reason, then the orders. "-" in place of an
// answer: there can be none; "!": a defect, and which.
std::string AsText(const ExactAnswer& answer) {
  std::ostringstream out;
  out << "= " << answer.value << ' ' << answer.bound.value << ' ' << answer.bound.rank << ' '
      << answer.seconds << '\n'
      << answer.bound.reason << '\n'
      << ToString(answer.orders);
  return out.str();
}

std::optional<ExactAnswer> FromText(const std::string& text) {
  std::istringstream in(text);
  char kind = 0;
  in >> kind;
  if (kind == '!') throw InvariantError("exact solver:" + text.substr(1));
  ExactAnswer answer;
  in >> answer.value >> answer.bound.value >> answer.bound.rank >> answer.seconds;
  if (kind != '=' || !in || in.get() != '\n') return {};
  std::getline(in, answer.bound.reason);
  const std::string orders(std::istreambuf_iterator<char>(in), {});
  if (orders.empty()) return {};  // cut off
  answer.orders = ParseOrders(orders);
  answer.proved = answer.value == answer.bound.value;
  return answer;
}

std::string Solve(const SearchProblem& problem, double seconds, const Orders& start) {
  try {
    return AsText(SolveExactly(problem, seconds, start));
  } catch (const InputError&) {
    return "-";  // more choices than it can hold
  } catch (const std::exception& error) {
    return std::string("! ") + error.what();
  }
}

[[noreturn]] void RunChild(int out, const SearchProblem& problem, double seconds,
                           const Orders& start) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);  // the parent decides
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (nowhere >= 0) {  // CBC is not always silent
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  const std::string text = Solve(problem, kSolversShare * seconds, start);
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(out, text.data() + done, text.size() - done);
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  ::_exit(0);
}

// A process that is gone when this is.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

// All that is written until the other end is closed; nothing if that takes too long.
std::optional<std::string> ReadUntil(Clock::time_point deadline, int in,
                                     const std::atomic<bool>* stop) {
  std::string text;
  while (Clock::now() < deadline && (stop == nullptr || !stop->load())) {
    pollfd one{.fd = in, .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, kPollMilliseconds) <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(in, buffer, sizeof(buffer));
    if (got == 0) return text;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  return {};
}

}  // namespace

std::optional<ExactAnswer> SolveExactlyApart(const SearchProblem& problem, double seconds,
                                             const Orders& start, const std::atomic<bool>* stop) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t pid = ::fork();
  if (pid == 0) RunChild(ends[1], problem, seconds, start);
  ::close(ends[1]);
  std::optional<std::string> text;
  if (pid > 0) {
    const Child child(pid);
    const auto length =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    text = ReadUntil(Clock::now() + length, ends[0], stop);
  }
  ::close(ends[0]);
  return text ? FromText(*text) : std::nullopt;
}

}  // namespace spiritlevel
