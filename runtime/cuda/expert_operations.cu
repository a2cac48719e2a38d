// Rows of the table of kernels: routing and experts.
#include "kernels/cuda/grouped_matmul.h"
#include "kernels/cuda/permute.h"
#include "kernels/cuda/route.h"
#include "runtime/cuda/kernel_entries.h"

namespace runtime {
namespace {

using K = sim::OpKind;
using R = sim::Role;

kernels::PermuteShape permutation(const Call& c) {
  const sim::Dims& d = c.dims();
  return {c.rows(), c.cols(), d.experts, d.chosen};
}
kernels::RouteShape route_shape(const Call& c) {
  const sim::Dims& d = c.dims();
  return {c.rows(), d.experts, d.chosen, d.groups, d.chosen_groups};
}

// Calls body(context for the rest, rows of the groups); there are as many rows as choices.
template <class Body>
void by_group(const Call& c, const Body& body) {
  const std::int64_t groups = c.dims().groups;
  const cuda::ExpertOrder order =
      cuda::order_by_expert(c.context, c.i32(R::indices), c.rows(), groups, false);
  body(c.context.behind(order.scratch_bytes), cuda::GroupedRows{c.rows(), groups, order.offsets});
}
kernels::cpu::GroupedShape grouped(const Call& c) {
  return {c.cols(), c.inner()};
}

constexpr KernelEntry kKernels[] = {
    {K::route,
     [](const Call& c) {
       cuda::route_forward(c.context, c.f32(R::weights), c.i32(R::indices), c.f32(R::logits),
                           c.tensor(R::bias), route_shape(c), c.routing());
     }},
    {K::route_backward,
     [](const Call& c) {
       cuda::route_backward(c.context, c.f32(R::dlogits), c.tensor(R::dbias), c.f32(R::dweights),
                            c.i32(R::indices), c.f32(R::logits), c.tensor(R::bias), route_shape(c),
                            c.routing());
     }},
    {K::permute,
     [](const Call& c) {
       cuda::permute(c.context, c.tensor(R::out), c.f32(R::row_weights), c.tensor(R::inp), c.f32(R::weights),
                     c.i32(R::indices), permutation(c));
     }},
    {K::unpermute,
     [](const Call& c) {
       cuda::unpermute(c.context, c.tensor(R::out), c.f32(R::weights), c.tensor(R::inp),
                       c.f32(R::row_weights), c.i32(R::indices), permutation(c));
     }},
    {K::grouped_matmul,
     [](const Call& c) {
       if (is_absorbed(c.operation())) return absorb(c);
       by_group(c, [&](const cuda::Context& context, const cuda::GroupedRows& rows) {
         cuda::grouped_matmul_forward(context, c.tensor(R::out), c.tensor(R::inp), c.tensor(R::weight),
                                      c.tensor(R::bias), rows, grouped(c));
       });
     }},
    {K::grouped_matmul_backward_input,
     [](const Call& c) {
       by_group(c, [&](const cuda::Context& context, const cuda::GroupedRows& rows) {
         cuda::grouped_matmul_backward_input(context, c.tensor(R::dinp), c.tensor(R::dout),
                                             c.tensor(R::weight), rows, grouped(c));
       });
     }},
    {K::grouped_matmul_backward_weight,
     [](const Call& c) {
       by_group(c, [&](const cuda::Context& context, const cuda::GroupedRows& rows) {
         cuda::grouped_matmul_backward_weight(context, c.tensor(R::dweight), c.tensor(R::dbias),
                                              c.tensor(R::dout), c.tensor(R::inp), rows, grouped(c));
       });
     }},
};

}  // namespace

std::span<const KernelEntry> cuda_expert_kernels() {
  return kKernels;
}

}  // namespace runtime
