// Two kinds of failure, two types.
//
// InputError: the user's input is wrong. It says where, what, and a way out; main() prints it and
// exits with status 2. InvariantError: we are wrong. SPIRITLEVEL_CHECK throws it in every build
// type; main() names the invariant and exits with status 70.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace spiritlevel {

// what() is "PLACE: WHAT", followed by the way out on indented lines of its own:
//
//   my.textproto:12: micro_batches: 19 is odd
//       dualpipe splits them over two directions; use 20, or schedule dualpipe-v
class InputError : public std::runtime_error {
 public:
  explicit InputError(std::string what, std::string way_out = "");

  // The same error with `place` (a file, a field) put before it.
  InputError At(std::string_view place) const;

  const std::string& problem() const { return problem_; }
  const std::string& way_out() const { return way_out_; }

 private:
  std::string problem_;
  std::string way_out_;
};

class InvariantError : public std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] void ThrowInvariantError(const char* file, int line, const char* condition,
                                      const char* invariant);

}  // namespace spiritlevel

// Always on. `invariant` says in words what must hold.
#define SPIRITLEVEL_CHECK(condition, invariant)                                      \
  do {                                                                               \
    if (!(condition)) [[unlikely]] {                                                 \
      ::spiritlevel::ThrowInvariantError(__FILE__, __LINE__, #condition, invariant); \
    }                                                                                \
  } while (false)
