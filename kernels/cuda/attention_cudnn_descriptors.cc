#include "kernels/cuda/attention_cudnn_descriptors.h"

#include <array>
#include <string>

#include "base/check.h"
#include "kernels/cuda/layer.h"

namespace spiritlevel::cuda {
namespace {

cudnnDataType_t TypeOf(GraphType type) {
  switch (type) {
    case GraphType::kFloat32:
      return CUDNN_DATA_FLOAT;
    case GraphType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case GraphType::kInt32:
      return CUDNN_DATA_INT32;
    case GraphType::kBoolean:
      return CUDNN_DATA_BOOLEAN;
  }
  SPIRITLEVEL_CHECK(false, "cuDNN has the type");
}

Descriptor TensorOf(const GraphTensor& tensor, size_t index) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const bool is_constant = tensor.role == GraphRole::kConstant;
  d.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, UniqueId(index));
  d.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(tensor.type));
  d.SetSome(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor.dims);
  d.SetSome(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor.strides);
  const int64_t alignment = tensor.type == GraphType::kBFloat16 ? 16 : 4;
  d.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  d.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, tensor.is_virtual());
  d.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_constant);
  d.Finalize();
  return d;
}

struct PointwiseKind {
  cudnnPointwiseMode_t mode;
  cudnnDataType_t computed = CUDNN_DATA_FLOAT;
  int64_t axis = -1;
};

PointwiseKind PointwiseOf(GraphOperation operation) {
  switch (operation) {
    case GraphOperation::kAdd:
      return {CUDNN_POINTWISE_ADD};
    case GraphOperation::kSubtract:
      return {CUDNN_POINTWISE_SUB};
    case GraphOperation::kMultiply:
      return {CUDNN_POINTWISE_MUL};
    case GraphOperation::kDivide:
      return {CUDNN_POINTWISE_DIV};
    case GraphOperation::kExp:
      return {CUDNN_POINTWISE_EXP};
    case GraphOperation::kLog:
      return {CUDNN_POINTWISE_LOG};
    case GraphOperation::kRowIndex:
      return {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2};
    case GraphOperation::kColIndex:
      return {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3};
    case GraphOperation::kGreaterOrEqual:
      return {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN};
    case GraphOperation::kSelect:
      return {CUDNN_POINTWISE_BINARY_SELECT};
    default:
      SPIRITLEVEL_CHECK(false, "the operation is pointwise");
  }
}

class Translator {
 public:
  explicit Translator(const AttentionGraph& graph) {
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      out_.tensors.push_back(TensorOf(graph.tensors[i], i));
    }
    for (const GraphNode& node : graph.nodes) Add(node);
  }
  GraphDescriptors Finish() { return std::move(out_); }

 private:
  const Descriptor& Tensor(int index) const { return out_.tensors[static_cast<size_t>(index)]; }

  void Add(const GraphNode& node) {
    switch (node.operation) {
      case GraphOperation::kMultiplyMatrices:
        return AddProduct(node);
      case GraphOperation::kTranspose:
        return AddTranspose(node);
      case GraphOperation::kLargest:
        return AddReduction(node, CUDNN_REDUCE_TENSOR_MAX);
      case GraphOperation::kSum:
        return AddReduction(node, CUDNN_REDUCE_TENSOR_ADD);
      default:
        return AddPointwise(node);
    }
  }

  void AddProduct(const GraphNode& node) {
    Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.Finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, Tensor(node.inputs[0]));
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, Tensor(node.inputs[1]));
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, Tensor(node.output));
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    Keep(std::move(operation));
    out_.kinds.push_back(std::move(kind));
  }

  void AddTranspose(const GraphNode& node) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, Tensor(node.inputs[0]));
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, Tensor(node.output));
    Keep(std::move(operation));
  }

  void AddReduction(const GraphNode& node, cudnnReduceTensorOp_t reduction) {
    Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, reduction);
    kind.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    kind.Finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, Tensor(node.inputs[0]));
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, Tensor(node.output));
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    Keep(std::move(operation));
    out_.kinds.push_back(std::move(kind));
  }

  void AddPointwise(const GraphNode& node) {
    const PointwiseKind pointwise = PointwiseOf(node.operation);
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, pointwise.mode);
    kind.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, pointwise.computed);
    if (pointwise.axis >= 0) {
      kind.Set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, pointwise.axis);
    }
    kind.Finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    constexpr std::array kInputs = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                    CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                    CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      operation.SetDescriptor(kInputs[i], Tensor(node.inputs[i]));
    }
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, Tensor(node.output));
    Keep(std::move(operation));
    out_.kinds.push_back(std::move(kind));
  }

  void Keep(Descriptor operation) {
    operation.Finalize();
    out_.operations.push_back(std::move(operation));
  }

  GraphDescriptors out_;
};

}  // namespace

void Check(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char why[512] = "";
  cudnnGetLastErrorString(why, sizeof(why));
  const bool cannot = status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
  throw GpuError(cannot ? GpuErrorKind::kUnsupported : GpuErrorKind::kOther, std::string(call),
                 std::string(cudnnGetErrorString(status)) + (why[0] == 0 ? "" : ": ") + why);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  Check(cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
  owner_.reset(descriptor);
}

void Descriptor::SetSome(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t count, const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(get(), name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    Check(status, "cudnnBackendSetAttribute of attribute " + std::to_string(name));
  }
}

void Descriptor::SetDescriptor(cudnnBackendAttributeName_t name, const Descriptor& other) {
  Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get());
}

void Descriptor::Finalize() { Check(cudnnBackendFinalize(get()), "cudnnBackendFinalize"); }

GraphDescriptors DescriptorsOf(const AttentionGraph& graph) { return Translator(graph).Finish(); }

}  // namespace spiritlevel::cuda
