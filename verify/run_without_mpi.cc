#include "base/check.h"
#include "verify/mpi_job.h"
#include "verify/mpi_session.h"
#include "verify/transports.h"

namespace spiritlevel {

bool HasMpi() { return false; }

MpiSession::MpiSession() = default;
MpiSession::~MpiSession() = default;

RunReport RunMpi(const RunSetting&) {
  throw InputError("this build is without MPI",
                   "install libopenmpi-dev and build again, or run ranks as threads or processes");
}

bool IsInMpiJob() { return false; }

// One process has what it has.
void ShareFromFirst(std::vector<Payload>*) {}
void ShareFromFirst(std::string*) {}
bool IsTrueOfAny(bool own) { return own; }
void DoAtFirst(const std::function<void()>& what) { what(); }

}  // namespace spiritlevel
