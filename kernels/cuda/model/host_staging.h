// HostStaging: the host's memory that copies to and from a device go through.
//
//   HostStaging staging(layer, device);
//   staging.Upload(compute, to, tokens.data(), bytes);   // `tokens` may go at once
//   staging.UploadNow(compute, to, weights, bytes);      // is there when it returns
//   staging.DownloadNow(compute, losses.data(), from, bytes);
//
// Upload() never waits for the device, so that a host may post as far ahead as it likes: where all
// pieces are still being read, it takes another. The other two wait, and go through pieces of
// bounded size however much there is to copy.
//
// One thread at a time, as with a layer's streams; the streams must outlive it.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {

class HostStaging {
 public:
  HostStaging(Layer* layer, int device) : layer_(layer), device_(device) {}
  // Waits for what still reads it. On a device that is lost it is left to the end of the process.
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  void Upload(Stream stream, void* to, const void* from, Bytes bytes);
  void UploadNow(Stream stream, void* to, const void* from, Bytes bytes);
  void DownloadNow(Stream stream, void* to, const void* from, Bytes bytes);

  Bytes held() const;  // of the host

 private:
  struct Piece {
    void* memory = nullptr;
    Bytes bytes = 0;
    Event done{};
    Stream stream{};    // that the last copy was posted on
    bool busy = false;  // perhaps: a copy was posted and nobody has seen its end
    bool lost = false;  // its event could not be recorded behind that copy: not used again
  };

  Piece* Idle(Bytes bytes);
  Piece* NewPiece(Bytes bytes);
  void CopyPosted(Piece* piece, Stream stream);
  void Free(Piece* piece) noexcept;

  Layer* layer_;
  int device_;
  std::vector<Piece> pieces_;
};

}  // namespace spiritlevel::cuda
