#include "calibrate/cuda_workload.h"

#include <algorithm>

#include "base/check.h"

namespace spiritlevel {
namespace {

constexpr Bytes kAlignment = 512;

class CallsWorkload : public CudaWorkload {
 public:
  CallsWorkload(const CudaShop& shop, cuda::Stream stream, const CudaWork& work)
      : CallsWorkload(shop, stream,
                      CudaOperands(shop.layer, shop.device, shop.filler, work.operands, shop.l2),
                      work) {}

  void Run() override {
    const std::vector<Posting>& postings = by_set_[static_cast<size_t>(set_)];
    set_ = set_ + 1 == operands_.sets() ? 0 : set_ + 1;
    for (const Posting& posting : postings) {
      if (posting.algorithm == nullptr) {
        shop_.layer->Launch(stream(), posting.call);
        continue;
      }
      shop_.layer->Multiply(stream(), std::get<cuda::Product>(posting.call), *posting.algorithm,
                            shop_.workspace);
    }
  }

  bool is_product() const override { return by_set_.front().front().algorithm != nullptr; }

 private:
  struct Posting {
    cuda::Call call;
    const cuda::ProductAlgorithm* algorithm = nullptr;  // of a product; kept by the plans
  };

  CallsWorkload(const CudaShop& shop, cuda::Stream stream, CudaOperands operands,
                const CudaWork& work)
      : CudaWorkload(stream, static_cast<int>(work.calls(operands.ViewsOf(0)).size())),
        shop_(shop),
        operands_(std::move(operands)) {
    for (int set = 0; set < operands_.sets(); ++set) {
      std::vector<Posting> postings;
      for (cuda::Call& call : work.calls(operands_.ViewsOf(set))) {
        postings.push_back({.call = std::move(call)});
        Choose(&postings.back());
      }
      by_set_.push_back(std::move(postings));
    }
    // Before anything is timed; and the memory may be given back whether anything is or not.
    shop_.layer->Synchronize(stream);
  }

  void Choose(Posting* posting) const {
    const auto* const product = std::get_if<cuda::Product>(&posting->call);
    if (product == nullptr) return;
    shop_.plans->Tune(*product, stream(), shop_.workspace);
    posting->algorithm = &shop_.plans->For(*product);
  }

  CudaShop shop_;
  CudaOperands operands_;
  std::vector<std::vector<Posting>> by_set_;
  int set_ = 0;
};

class PostedWorkload : public CudaWorkload {
 public:
  PostedWorkload(cuda::Stream stream, int launches, std::function<void()> post)
      : CudaWorkload(stream, launches), post_(std::move(post)) {}
  void Run() override { post_(); }
  bool waits() const override { return true; }

 private:
  std::function<void()> post_;
};

class EmptyWorkload : public CudaWorkload {
 public:
  EmptyWorkload(const CudaShop& shop, cuda::Stream stream)
      : CudaWorkload(stream, 1),
        layer_(shop.layer),
        memory_(CudaMemory::OnDevice(shop.layer, shop.device, kAlignment)),
        done_(layer_, layer_->MakeEvent(shop.device, /*timed=*/false)) {}

  void Run() override {
    layer_->Launch(
        stream(), cuda::Fill{.to = cuda::Dense(memory_.data(), cuda::ElementType::kFloat32, 1, 1)});
    layer_->Record(done_.get(), stream());
    layer_->Wait(stream(), done_.get());
  }

 private:
  cuda::Layer* layer_;
  CudaMemory memory_;
  CudaOwned<cuda::Event> done_;
};

}  // namespace

std::unique_ptr<CudaWorkload> MakeCudaWorkload(const CudaShop& shop, cuda::Stream stream,
                                               CudaWork work) {
  return std::make_unique<CallsWorkload>(shop, stream, work);
}

std::unique_ptr<CudaWorkload> MakeCudaWorkload(cuda::Stream stream, int launches,
                                               std::function<void()> post) {
  return std::make_unique<PostedWorkload>(stream, launches, std::move(post));
}

std::unique_ptr<CudaWorkload> MakeEmptyCudaWorkload(const CudaShop& shop, cuda::Stream stream) {
  return std::make_unique<EmptyWorkload>(shop, stream);
}

CudaBuffers::CudaBuffers(const CudaShop& shop, Bytes bytes)
    : CudaBuffers(shop.layer, shop.device, bytes, shop.l2) {}

CudaBuffers::CudaBuffers(cuda::Layer* layer, int device, Bytes bytes, Bytes l2)
    : bytes_(bytes),
      stride_((bytes + kAlignment - 1) / kAlignment * kAlignment),
      count_(2 * l2 / bytes + 1),
      memory_(CudaMemory::OnDevice(layer, device, count_ * stride_)) {}

std::byte* CudaBuffers::Next() {
  at_ = at_ + 1 == count_ ? 0 : at_ + 1;
  return memory_.data() + at_ * stride_;
}

}  // namespace spiritlevel
