// MpiSession: MPI from main()'s begin to its end. Without MPI in the build, one process alone.
#pragma once

namespace spiritlevel {

class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace spiritlevel
