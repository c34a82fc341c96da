// Root may read and write everything; while this lives, root is an ordinary user.
#pragma once

#include <unistd.h>

namespace spiritlevel {

class Unprivileged {
 public:
  Unprivileged() : before_(::geteuid()) {
    if (before_ == 0) changed_ = ::seteuid(kNobody) == 0;
  }
  ~Unprivileged() {
    if (changed_ && ::seteuid(before_) != 0) ::_exit(1);
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

  // False where even root may not become another user.
  bool holds() const { return ::geteuid() != 0; }

 private:
  static constexpr uid_t kNobody = 65534;
  uid_t before_;
  bool changed_ = false;
};

}  // namespace spiritlevel
