#include <algorithm>

#include "runtime/cuda/few_rows.h"
#include "runtime/cuda/matmul.h"

namespace runtime {
namespace {

using cuda::ConstTensor;
using cuda::Ending;
using cuda::InputNorm;
using cuda::Tensor;
using sim::OpKind;
using sim::Role;

// The norm as an input norm of the product that reads its result.
InputNorm norm_of(const Call& norm) {
  InputNorm n;
  n.kind = norm.kind() == OpKind::rmsnorm ? InputNorm::Kind::rms : InputNorm::Kind::layer;
  n.gain = norm.tensor(Role::weight);
  n.shift = norm.tensor(Role::bias);
  n.eps = norm.scalar();
  n.normed = norm.tensor(Role::out);
  return n;
}

// Statistics are kept for a backward pass, and this kernel has none.
bool takes_norm(const Call& norm, const Call& product) {
  if (norm.kind() != OpKind::rmsnorm && norm.kind() != OpKind::layernorm) return false;
  // Four bits a weight leave no instructions for more than themselves (tests/cuda/budget.md).
  if (product.kind() != OpKind::matmul || product.weights().format == cuda::WeightFormat::int4) return false;
  const ConstTensor gain = norm.tensor(Role::weight), shift = norm.tensor(Role::bias);
  const bool whole = norm.row_stride(Role::inp) == 0 && norm.row_stride(Role::out) == 0;
  return whole && norm.rows() == product.rows() && norm.f32(Role::rstd) == nullptr && gain &&
         gain.type == cuda::Type::bf16 && (!shift || shift.type == cuda::Type::bf16) &&
         norm.tensor(Role::out).data == product.tensor(Role::inp).data &&
         norm.tensor(Role::inp).type == cuda::Type::bf16;
}

struct Followed {
  Ending ending;
  std::size_t operations = 0;
};

Followed ending_of(const Call& product, std::span<const Call> behind) {
  const Tensor out = product.tensor(Role::out);
  if (behind.empty() || out.type != cuda::Type::bf16) return {};
  const Call& next = behind[0];
  const auto activation = [&](Ending::Kind kind, Role input) -> Followed {
    const Tensor activated = next.tensor(Role::out);
    if (next.tensor(input).data != out.data || activated.type != cuda::Type::bf16 ||
        next.row_weights().values != nullptr)
      return {};
    Ending ending;
    ending.kind = kind;
    ending.activated = activated;
    return {ending, 1};
  };
  switch (next.kind()) {
    case OpKind::gelu:
      return activation(Ending::Kind::gelu, Role::inp);
    case OpKind::swiglu:
      return activation(Ending::Kind::silu_gate, Role::gate_up);
    case OpKind::geglu:
      return activation(Ending::Kind::gelu_gate, Role::gate_up);
    case OpKind::rope: {
      if (behind.size() < 2 || behind[1].kind() != OpKind::kv_append) return {};
      const Call& append = behind[1];
      if (next.tensor(Role::qkv).data != out.data || append.tensor(Role::qkv).data != out.data ||
          next.i32(Role::positions) != append.i32(Role::positions))
        return {};
      Ending ending;
      ending.kind = Ending::Kind::rotate_append;
      ending.cache = append.kv_cache(0, 4);
      if (!ending.cache.is_fp8() && ending.cache.k.type != cuda::Type::bf16) return {};
      ending.table = next.f32(1);
      ending.position = append.i32(Role::positions);
      ending.shape = append.attention();
      return {ending, 2};
    }
    default:
      return {};
  }
}

// Whether the ending writes over the norm's result, as the plan allows: then that need not be written.
bool is_written_over(const Call& norm, std::span<const Call> behind) {
  return std::any_of(behind.begin(), behind.end(),
                     [&](const Call& call) { return call.writes_over(*norm.find(Role::out)); });
}

// Products of two rows and more by tensor cores, only where each sequence gets one token: in training a
// recomputed pass must have the same bits as the pass that kept its statistics. GELU after weights in 16 bits
// is cuBLASLt's epilogue if nothing else is to be done.
bool takes_few_rows(const Call& product, const InputNorm& norm, const Followed& followed) {
  const std::int64_t rows = product.rows();
  const cuda::WeightFormat format = product.weights().format;
  const Tensor out = product.tensor(0), addend = product.tensor(4);
  if (rows < 2 || product.query_length() != 1 || product.tensor(1).type != cuda::Type::bf16 ||
      out.type != cuda::Type::bf16 || (addend && addend.type != cuda::Type::bf16) ||
      !cuda::gemv_tensor_cores_takes(format, rows, product.inner()))
    return false;
  const bool norms = norm.kind != InputNorm::Kind::none;
  if (norms && (norm.kind != InputNorm::Kind::rms || !cuda::gemv_tensor_cores_has_norm(format, rows)))
    return false;
  switch (followed.ending.kind) {
    case Ending::Kind::none:
      return norms;
    case Ending::Kind::gelu:
      return norms || format != cuda::WeightFormat::bf16;
    case Ending::Kind::silu_gate:
    case Ending::Kind::gelu_gate:
      return cuda::gemv_tensor_cores_has_gate(format, rows);
    case Ending::Kind::rotate_append:
      return false;
  }
  return false;
}

}  // namespace

FusedRun product_of_few_rows(std::span<const Call> calls) {
  const std::size_t at = calls.size() > 1 && takes_norm(calls[0], calls[1]) ? 1 : 0;
  const Call& product = calls[at];
  if (product.kind() != OpKind::matmul) return {};
  const bool one_row = is_one_row(product);
  Followed followed = ending_of(product, calls.subspan(at + 1));
  if (!one_row && followed.ending.kind == Ending::Kind::rotate_append) followed = {};
  if (at + followed.operations == 0) return {};
  InputNorm norm;
  if (at == 1) norm = norm_of(calls[0]);
  if (!one_row && !takes_few_rows(product, norm, followed)) return {};
  if (at == 1 && is_written_over(calls[0], calls.subspan(2, followed.operations))) norm.normed = {};
  const ConstTensor inp = at == 1 ? calls[0].tensor(Role::inp) : product.tensor(Role::inp);
  if (one_row)
    cuda::gemv_with(product.context, product.tensor(0), inp, product.weights(), product.tensor(3),
                    product.tensor(4), product.cols(), product.inner(), norm, followed.ending);
  else
    cuda::gemv_tensor_cores(product.context, product.tensor(0), inp, product.weights(), product.tensor(3),
                            product.tensor(4), product.rows(), product.cols(), product.inner(), norm,
                            followed.ending);
  return {at + 1 + followed.operations, at};
}

}  // namespace runtime
