// In a build without NCCL: one device to a process has no peer to talk to.
#include "kernels/cuda/cuda_communication.h"

namespace spiritlevel::cuda {

struct CudaCommunicator {};

namespace {

[[noreturn]] void Refuse(std::string_view call) {
  throw GpuError(GpuErrorKind::kUnsupported, std::string(call),
                 "this build is without NCCL; install it and configure again");
}

}  // namespace

CudaCommunication::CudaCommunication() = default;
CudaCommunication::~CudaCommunication() = default;

int CudaCommunication::Version() { return 0; }
CommunicatorId CudaCommunication::MakeId() { Refuse("MakeCommunicatorId"); }
Communicator CudaCommunication::Make(int, const CommunicatorId&, int, int) {
  Refuse("MakeCommunicator");
}
void CudaCommunication::Destroy(Communicator) noexcept {}
void CudaCommunication::BeginGroup() { Refuse("BeginGroup"); }
void CudaCommunication::EndGroup() { Refuse("EndGroup"); }
void CudaCommunication::Send(Communicator, Place, const Part&) { Refuse("Send"); }
void CudaCommunication::Receive(Communicator, Place, const Part&) { Refuse("Receive"); }
void CudaCommunication::AllReduce(Communicator, Place, View, Reduction) { Refuse("AllReduce"); }
void CudaCommunication::ReduceScatter(Communicator, Place, View, View) { Refuse("ReduceScatter"); }
void CudaCommunication::AllGather(Communicator, Place, const Part&) { Refuse("AllGather"); }
void CudaCommunication::AllToAll(Communicator, Place, const Part&) { Refuse("AllToAll"); }
std::optional<std::string> CudaCommunication::Failure(Communicator) { return {}; }
void CudaCommunication::Abort(Communicator) noexcept {}
void CudaCommunication::Settle(Unsettled*) {}
std::optional<std::string> CudaCommunication::FailureOn(int) { return {}; }
int CudaCommunication::device_of(Communicator) const { return 0; }

}  // namespace spiritlevel::cuda
