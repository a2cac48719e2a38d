// Rows of the table of kernels: activations, norms of queries and keys, columns of wider rows.
#include "kernels/cuda/columns.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/feed_forward.h"
#include "kernels/cuda/qk_norm.h"
#include "runtime/cuda/kernel_entries.h"

namespace runtime {
namespace {

using K = sim::OpKind;
using R = sim::Role;
using cuda::Activation;

template <Activation A>
void activation(const Call& c) {
  cuda::activation_forward(c.context, A, c.tensor(R::out), c.tensor(R::inp), c.rows(), c.cols(),
                           c.row_weights());
}
template <Activation A>
void activation_backward(const Call& c) {
  cuda::activation_backward(c.context, A, c.tensor(R::dinp), c.tensor(R::dout), c.tensor(R::inp), c.rows(),
                            c.cols(), c.row_weights(), c.f32(R::drow_weights));
}
template <Activation A>
void gated(const Call& c) {
  cuda::gated_forward(c.context, A, c.tensor(R::out), c.tensor(R::gate_up), c.rows(), c.cols(),
                      c.row_weights());
}
template <Activation A>
void gated_backward(const Call& c) {
  cuda::gated_backward(c.context, A, c.tensor(R::dgate_up), c.tensor(R::dout), c.tensor(R::gate_up), c.rows(),
                       c.cols(), c.row_weights(), c.f32(R::drow_weights));
}

kernels::QkNormShape qk_norm(const Call& c) {
  const sim::Dims& d = c.dims();
  const auto weight = static_cast<std::size_t>(sim::index_of(c.kind(), R::weight));
  const bool all_heads = c.tensor(weight) && c.count(weight) != 2 * d.head_dim;
  return {c.batch() * c.query_length(), d.heads, d.kv_heads, d.head_dim, all_heads};
}

constexpr KernelEntry kKernels[] = {
    {K::relu, activation<Activation::relu>},
    {K::relu_backward, activation_backward<Activation::relu>},
    {K::squared_relu, activation<Activation::squared_relu>},
    {K::squared_relu_backward, activation_backward<Activation::squared_relu>},
    {K::gelu_exact, activation<Activation::gelu_exact>},
    {K::gelu_exact_backward, activation_backward<Activation::gelu_exact>},
    {K::weigh_rows, activation<Activation::none>},
    {K::weigh_rows_backward, activation_backward<Activation::none>},
    {K::geglu, gated<Activation::gelu>},
    {K::geglu_backward, gated_backward<Activation::gelu>},
    {K::clamped_swiglu, gated<Activation::clamped_silu>},
    {K::clamped_swiglu_backward, gated_backward<Activation::clamped_silu>},
    {K::qk_norm,
     [](const Call& c) {
       cuda::qk_norm_forward(c.context, c.tensor(R::out), c.f32(R::rstd), c.tensor(R::inp),
                             c.tensor(R::weight), c.scalar(), qk_norm(c));
     }},
    {K::qk_norm_backward,
     [](const Call& c) {
       cuda::qk_norm_backward(c.context, c.tensor(R::dqkv), c.tensor(R::dweight), c.tensor(R::inp),
                              c.tensor(R::weight), c.f32(R::rstd), qk_norm(c));
     }},
    {K::add_columns,
     [](const Call& c) {
       cuda::add_columns(c.context, c.tensor(R::out), c.tensor(R::inp), c.scalar(), c.rows(), c.columns());
     }},
    {K::take_columns,
     [](const Call& c) {
       cuda::take_columns(c.context, c.tensor(R::out), c.tensor(R::inp), c.scalar(), c.rows(), c.columns());
     }},
};

}  // namespace

void swiglu(const Call& c) {
  if (c.row_weights().values) return gated<Activation::silu>(c);
  cuda::swiglu_forward(c.context, c.tensor(R::out), c.tensor(R::gate_up), c.rows(), c.cols());
}
void swiglu_backward(const Call& c) {
  if (c.row_weights().values) return gated_backward<Activation::silu>(c);
  cuda::swiglu_backward(c.context, c.tensor(R::dgate_up), c.tensor(R::dout), c.tensor(R::gate_up), c.rows(),
                        c.cols());
}

std::span<const KernelEntry> cuda_layer_kernels() {
  return kKernels;
}

}  // namespace runtime
