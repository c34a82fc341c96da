#include "kernels/cuda/cuda_products.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "kernels/cuda/cuda_errors.h"
#include "kernels/cuda/product_plans.h"

namespace spiritlevel::cuda {
namespace {

cudaDataType_t TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return CUDA_R_32F;
    case ElementType::kBFloat16:
      return CUDA_R_16BF;
    case ElementType::kFloat8E4M3:
      return CUDA_R_8F_E4M3;
    case ElementType::kFloat8E5M2:
      return CUDA_R_8F_E5M2;
    case ElementType::kInt32:
    case ElementType::kFloat64:
      break;
  }
  throw GpuError(GpuErrorKind::kUnsupported, "a product", "its operands are of no type of ours");
}

// What cuBLASLt wants to know of a product; nothing of it is on the heap.
class Problem {
 public:
  explicit Problem(const Product& p) {
    // In fp32 and no shorter, also inside: no TF32.
    Check(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescInit");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.scale_b != nullptr) Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_b);
    if (p.scale_a != nullptr) Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_a);
    Lay(&first_, p.b);
    Lay(&second_, p.a);
    Lay(&result_, p.c);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  cublasLtMatmulDesc_t operation() { return &operation_; }
  cublasLtMatrixLayout_t first() { return &first_; }
  cublasLtMatrixLayout_t second() { return &second_; }
  cublasLtMatrixLayout_t result() { return &result_; }

 private:
  template <typename Value>
  void Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    Check(cublasLtMatmulDescSetAttribute(&operation_, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
  static void Lay(cublasLtMatrixLayoutOpaque_t* layout, const View& view) {
    Check(cublasLtMatrixLayoutInit(layout, TypeOf(view.type), static_cast<uint64_t>(view.cols),
                                   static_cast<uint64_t>(view.rows), view.stride),
          "cublasLtMatrixLayoutInit");
  }

  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t first_{};
  cublasLtMatrixLayoutOpaque_t second_{};
  cublasLtMatrixLayoutOpaque_t result_{};
};

class Preference {
 public:
  Preference(const Product& p, Bytes workspace) {
    Check(cublasLtMatmulPreferenceInit(&preference_), "cublasLtMatmulPreferenceInit");
    Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(p.b));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(p.a));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Alignment(p.c));
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(p.c));
  }
  cublasLtMatmulPreference_t get() { return &preference_; }

 private:
  static uint32_t Alignment(const View& view) {
    return static_cast<uint32_t>(AlignmentOf(view.data));
  }
  template <typename Value>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    Check(cublasLtMatmulPreferenceSetAttribute(&preference_, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  cublasLtMatmulPreferenceOpaque_t preference_{};
};

}  // namespace

CudaProducts::~CudaProducts() {
  for (const auto& [device, handle] : handles_) cublasLtDestroy(handle);
}

cublasLtHandle_t CudaProducts::HandleOf(int device) {
  const std::lock_guard lock(mutex_);
  cublasLtHandle_t& handle = handles_[device];
  if (handle == nullptr) Check(cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

std::vector<ProductAlgorithm> CudaProducts::Find(int device, const Product& product,
                                                 Bytes workspace, int most) {
  Problem problem(product);
  Preference preference(product, workspace);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      HandleOf(device), problem.operation(), problem.first(), problem.second(), problem.result(),
      problem.result(), preference.get(), most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  Check(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<ProductAlgorithm> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    ProductAlgorithm algorithm;
    algorithm.opaque.resize(sizeof(results[i].algo));
    std::memcpy(algorithm.opaque.data(), &results[i].algo, sizeof(results[i].algo));
    algorithm.workspace = static_cast<Bytes>(results[i].workspaceSize);
    algorithms.push_back(std::move(algorithm));
  }
  return algorithms;
}

void CudaProducts::Multiply(int device, cudaStream_t stream, const Product& product,
                            const ProductAlgorithm& algorithm, void* workspace) {
  cublasLtMatmulAlgo_t algo{};
  SPIRITLEVEL_CHECK(algorithm.opaque.size() == sizeof(algo), "an algorithm is one that was found");
  std::memcpy(&algo, algorithm.opaque.data(), sizeof(algo));
  Problem problem(product);
  Check(cublasLtMatmul(HandleOf(device), problem.operation(), &product.alpha, product.b.data,
                       problem.first(), product.a.data, problem.second(), &product.beta,
                       product.c.data, problem.result(), product.c.data, problem.result(), &algo,
                       workspace, static_cast<size_t>(algorithm.workspace), stream),
        "cublasLtMatmul");
}

}  // namespace spiritlevel::cuda
