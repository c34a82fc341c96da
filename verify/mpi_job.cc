#include "verify/mpi_job.h"

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr int kFirst = 0;

bool IsFirst() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank == kFirst;
}

int64_t ShareNumber(int64_t number) {
  MPI_Bcast(&number, 1, MPI_INT64_T, kFirst, MPI_COMM_WORLD);
  return number;
}

// MPI counts in int: larger things are shared piece by piece.
void ShareBytes(std::span<std::byte> bytes) {
  constexpr size_t kMost = size_t{1} << 30;
  while (!bytes.empty()) {
    const size_t piece = std::min(kMost, bytes.size());
    MPI_Bcast(bytes.data(), static_cast<int>(piece), MPI_BYTE, kFirst, MPI_COMM_WORLD);
    bytes = bytes.subspan(piece);
  }
}

}  // namespace

bool IsInMpiJob() {
  int has_begun = 0;
  int has_ended = 0;
  MPI_Initialized(&has_begun);
  MPI_Finalized(&has_ended);
  return has_begun != 0 && has_ended == 0;
}

void ShareFromFirst(std::vector<Payload>* payloads) {
  const int64_t count = ShareNumber(static_cast<int64_t>(payloads->size()));
  const bool is_first = IsFirst();
  if (!is_first) payloads->clear();
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t size = ShareNumber(is_first ? static_cast<int64_t>((*payloads)[at].size()) : 0);
    if (!is_first) payloads->push_back(Payload::Allocate(static_cast<size_t>(size)));
    ShareBytes((*payloads)[at].bytes());
  }
}

void ShareFromFirst(std::string* text) {
  const int64_t size = ShareNumber(static_cast<int64_t>(text->size()));
  text->resize(static_cast<size_t>(size));
  ShareBytes(std::as_writable_bytes(std::span(*text)));
}

bool IsTrueOfAny(bool own) {
  int any = own ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
  return any != 0;
}

void DoAtFirst(const std::function<void()>& what) {
  std::exception_ptr thrown;
  std::string problem;
  std::string way_out;
  bool is_input_error = false;
  if (IsFirst()) {
    try {
      what();
    } catch (const InputError& error) {
      thrown = std::current_exception();
      problem = error.problem();
      way_out = error.way_out();
      is_input_error = true;
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      problem = error.what();
    }
  }
  const bool has_failed = IsTrueOfAny(thrown != nullptr);
  if (!has_failed) return;
  ShareFromFirst(&problem);
  ShareFromFirst(&way_out);
  is_input_error = IsTrueOfAny(is_input_error);
  if (thrown != nullptr) std::rethrow_exception(thrown);
  if (is_input_error) throw InputError(problem, way_out);
  throw std::runtime_error(problem);
}

}  // namespace spiritlevel
