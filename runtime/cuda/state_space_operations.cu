// Rows of the table of kernels: state-space layers.
#include "kernels/cuda/state_space.h"
#include "runtime/cuda/kernel_entries.h"

namespace runtime {
namespace {

using K = sim::OpKind;
using R = sim::Role;

kernels::SelectiveScanShape scan_shape(const Call& c) {
  return selective_scan_shape(c.dims(), c.batch(), c.query_length());
}
kernels::CausalConvShape conv_shape(const Call& c) {
  return {c.batch(), c.query_length(), scan_shape(c).columns(), c.dims().taps};
}
kernels::GatedNormShape norm_shape(const Call& c) {
  return {c.batch() * c.query_length(), scan_shape(c).inner(), c.dims().groups};
}

// A row of the projection: a gate, what the convolution takes, a time step a head.
cuda::WritableColumns columns_of(const Call& c, R projected, std::int64_t first) {
  const kernels::SelectiveScanShape s = scan_shape(c);
  return {from_row(c.tensor(projected), first, 1), s.inner() + s.columns() + s.H};
}
cuda::WritableColumns gates(const Call& c, R projected) {
  return columns_of(c, projected, 0);
}
cuda::WritableColumns convolved(const Call& c, R projected) {
  return columns_of(c, projected, scan_shape(c).inner());
}
cuda::WritableColumns time_steps(const Call& c, R projected) {
  return columns_of(c, projected, scan_shape(c).inner() + scan_shape(c).columns());
}
cuda::ConstColumns read(const cuda::WritableColumns& columns) {
  return {columns.first, columns.stride};
}

constexpr KernelEntry kKernels[] = {
    {K::causal_conv,
     [](const Call& c) {
       cuda::causal_conv_forward(c.context, c.tensor(R::out), c.tensor(R::history),
                                 read(convolved(c, R::projected)), c.tensor(R::weight), c.tensor(R::bias),
                                 c.i32(R::positions), conv_shape(c));
     }},
    {K::causal_conv_backward,
     [](const Call& c) {
       cuda::causal_conv_backward(c.context, convolved(c, R::dprojected), c.tensor(R::dweight),
                                  c.tensor(R::dbias), c.tensor(R::dout), read(convolved(c, R::projected)),
                                  c.tensor(R::weight), c.tensor(R::bias), conv_shape(c));
     }},
    {K::selective_scan,
     [](const Call& c) {
       cuda::selective_scan_forward(c.context, c.tensor(R::out), c.f32(R::states), c.tensor(R::xbc),
                                    read(time_steps(c, R::projected)), c.tensor(R::head_weights),
                                    c.i32(R::positions), scan_shape(c));
     }},
    {K::selective_scan_backward,
     [](const Call& c) {
       cuda::selective_scan_backward(c.context, c.tensor(R::dxbc), time_steps(c, R::dprojected),
                                     c.tensor(R::dhead_weights), c.f32(R::chunk_states), c.tensor(R::dout),
                                     c.tensor(R::xbc), read(time_steps(c, R::projected)),
                                     c.tensor(R::head_weights), scan_shape(c));
     }},
    {K::gated_norm,
     [](const Call& c) {
       cuda::gated_norm_forward(c.context, c.tensor(R::out), c.f32(R::rstd), c.tensor(R::inp),
                                read(gates(c, R::projected)), c.tensor(R::weight), c.scalar(), norm_shape(c));
     }},
    {K::gated_norm_backward,
     [](const Call& c) {
       cuda::gated_norm_backward(c.context, c.tensor(R::dinp), gates(c, R::dprojected), c.tensor(R::dweight),
                                 c.tensor(R::dout), c.tensor(R::inp), read(gates(c, R::projected)),
                                 c.tensor(R::weight), c.f32(R::rstd), norm_shape(c));
     }},
};

}  // namespace

std::span<const KernelEntry> cuda_state_space_kernels() {
  return kKernels;
}

kernels::SelectiveScanShape selective_scan_shape(const sim::Dims& d, std::int64_t batch,
                                                 std::int64_t tokens) {
  return {batch, tokens, d.heads, d.head_dim, d.groups, d.states, d.scan_chunk};
}

bool takes_scan(const sim::Operation& operation) {
  const bool scans = operation.kind == K::selective_scan || operation.kind == K::selective_scan_backward;
  return !scans || cuda::scan_takes(selective_scan_shape(operation.dims, 1, 1));
}

}  // namespace runtime
