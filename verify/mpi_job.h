// What all processes of an MPI job do together between runs. All must call each of these, in the
// same order; a process that does not come keeps the others waiting until mpirun ends the job. In a
// build without MPI there is one process, alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/payload.h"

namespace spiritlevel {

// Whether this process is one of a job that has begun (mpi_session.h). The only one of these that
// may be called where it is none.
bool IsInMpiJob();

// All have what the first has.
void ShareFromFirst(std::vector<Payload>* payloads);
void ShareFromFirst(std::string* text);
// Whether it is true of any.
bool IsTrueOfAny(bool own);
// The first does it, the others wait. What it throws ends it for all: an InputError as the same,
// all else, at the others, as a std::runtime_error in its words.
void DoAtFirst(const std::function<void()>& what);

}  // namespace spiritlevel
