#include "kernels/cuda/model/host_staging.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace spiritlevel::cuda {
namespace {

constexpr Bytes kLeast = 4096;
constexpr Bytes kMostAtOnce = Bytes{16} << 20;

// Powers of two, so that pieces fit again.
Bytes SizeOfPiece(Bytes bytes) {
  return std::max(kLeast, static_cast<Bytes>(std::bit_ceil(static_cast<uint64_t>(bytes))));
}

}  // namespace

HostStaging::~HostStaging() {
  for (Piece& piece : pieces_) Free(&piece);
}

void HostStaging::Free(Piece* piece) noexcept {
  try {
    if (piece->busy) layer_->Synchronize(piece->stream);
  } catch (const GpuError&) {
    return;  // freed under a copy it would be worse than kept
  }
  layer_->Destroy(piece->done);
  layer_->FreeHost(piece->memory);
}

HostStaging::Piece* HostStaging::NewPiece(Bytes bytes) {
  Piece piece{.bytes = SizeOfPiece(bytes)};
  pieces_.reserve(pieces_.size() + 1);
  piece.done = layer_->MakeEvent(device_, /*timed=*/false);
  try {
    piece.memory = layer_->AllocateHost(piece.bytes);
  } catch (...) {
    layer_->Destroy(piece.done);
    throw;
  }
  pieces_.push_back(piece);
  return &pieces_.back();
}

// The smallest that is large enough. Which one it is, and so how quick the device was, changes
// nothing on the device.
HostStaging::Piece* HostStaging::Idle(Bytes bytes) {
  Piece* best = nullptr;
  for (Piece& piece : pieces_) {
    if (piece.lost || piece.bytes < bytes || (best != nullptr && best->bytes <= piece.bytes))
      continue;
    if (piece.busy && !layer_->IsDone(piece.done)) continue;
    piece.busy = false;
    best = &piece;
  }
  return best == nullptr ? NewPiece(bytes) : best;
}

void HostStaging::CopyPosted(Piece* piece, Stream stream) {
  piece->stream = stream;
  piece->busy = true;
  piece->lost = true;
  layer_->Record(piece->done, stream);
  piece->lost = false;
}

void HostStaging::Upload(Stream stream, void* to, const void* from, Bytes bytes) {
  if (bytes == 0) return;
  Piece* const piece = Idle(bytes);
  std::memcpy(piece->memory, from, static_cast<size_t>(bytes));
  layer_->Copy(stream, to, piece->memory, bytes);
  CopyPosted(piece, stream);
}

void HostStaging::UploadNow(Stream stream, void* to, const void* from, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += kMostAtOnce) {
    Upload(stream, static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at,
           std::min(kMostAtOnce, bytes - at));
    layer_->Synchronize(stream);
  }
}

void HostStaging::DownloadNow(Stream stream, void* to, const void* from, Bytes bytes) {
  for (Bytes at = 0; at < bytes; at += kMostAtOnce) {
    const Bytes size = std::min(kMostAtOnce, bytes - at);
    Piece* const piece = Idle(size);
    layer_->Copy(stream, piece->memory, static_cast<const std::byte*>(from) + at, size);
    CopyPosted(piece, stream);
    layer_->Synchronize(stream);
    std::memcpy(static_cast<std::byte*>(to) + at, piece->memory, static_cast<size_t>(size));
  }
}

Bytes HostStaging::held() const {
  Bytes sum = 0;
  for (const Piece& piece : pieces_) sum += piece.bytes;
  return sum;
}

}  // namespace spiritlevel::cuda
