// Rows of the table of kernels: gradient norms and optimizers.
#include <vector>

#include "kernels/cuda/adafactor.h"
#include "kernels/cuda/adam_8bit.h"
#include "kernels/cuda/muon.h"
#include "runtime/cuda/kernel_entries.h"

namespace runtime {
namespace {

using sim::OpKind;

// The gradients, which follow the first operand.
std::vector<cuda::GradientTensor> gradients_of(const Call& c) {
  std::vector<cuda::GradientTensor> gradients;
  for (std::size_t i = 1; i < c.operands(); ++i) gradients.push_back({c.tensor(i), c.count(i)});
  return gradients;
}

void squared_norm(const Call& c) {
  const double factor = c.scalar() != 0 ? static_cast<double>(c.scalar()) : 1.0;
  cuda::add_squares(c.context, c.as<cuda::GradientNorm>(0), gradients_of(c), factor);
}

// The factor of gradients; the first operand of every update.
const double* gradient_scale(const Call& c) {
  return &c.as<cuda::GradientNorm>(0)->clip_scale;
}

// The tensors of an operation, one for each group of kGroup operands after the first: make(index of the
// group's first operand, its stream of random numbers).
template <std::size_t kGroup, class Make>
auto tensors_of(const Call& c, const Make& make) {
  std::vector<decltype(make(std::size_t{}, std::uint64_t{}))> tensors;
  for (std::size_t i = 1; i + kGroup <= c.operands(); i += kGroup)
    tensors.push_back(make(i, c.random_stream(tensors.size())));
  return tensors;
}

void adamw(const Call& c) {
  // Parameter, gradient, two moments, master copy.
  const auto tensors = tensors_of<5>(c, [&](std::size_t i, std::uint64_t stream) {
    return cuda::AdamWTensor{c.tensor(i),  c.tensor(i + 1), c.f32(i + 2), c.f32(i + 3),
                             c.f32(i + 4), c.count(i),      stream};
  });
  cuda::adamw(c.context, tensors, gradient_scale(c), &c.numbers->adamw, c.decay());
}

void adamw_8bit(const Call& c) {
  // Parameter, gradient, two moments, their scales, master copy.
  const auto tensors = tensors_of<7>(c, [&](std::size_t i, std::uint64_t stream) {
    return cuda::AdamW8BitTensor{c.tensor(i),
                                 c.tensor(i + 1),
                                 c.as<std::uint8_t>(i + 2),
                                 c.as<std::uint8_t>(i + 3),
                                 c.f32(i + 4),
                                 c.f32(i + 5),
                                 c.f32(i + 6),
                                 c.count(i),
                                 stream};
  });
  cuda::adamw_8bit(c.context, tensors, gradient_scale(c), &c.numbers->adamw, c.decay());
}

// The tensors of optimizers with one moment: parameter, gradient, moment, master copy.
template <class Tensor>
std::vector<Tensor> tensors_with_moment(const Call& c) {
  return tensors_of<4>(c, [&](std::size_t i, std::uint64_t stream) {
    return Tensor{c.tensor(i), c.tensor(i + 1), c.f32(i + 2), c.f32(i + 3), c.count(i), stream};
  });
}

// A matrix has as many rows and columns as moments of them. A tensor of several matrices has that many times
// more of both.
void adafactor(const Call& c) {
  // Parameter, gradient, moments of rows and columns, master copy.
  const auto tensors = tensors_of<5>(c, [&](std::size_t i, std::uint64_t stream) {
    cuda::AdafactorTensor tensor{c.tensor(i), c.tensor(i + 1), c.f32(i + 2), c.f32(i + 3), c.f32(i + 4), 1,
                                 1,           c.count(i),      stream};
    if (tensor.column_moment != nullptr) {
      tensor.matrices = c.count(i + 2) * c.count(i + 3) / c.count(i);
      tensor.rows = c.count(i + 2) / tensor.matrices;
      tensor.cols = c.count(i + 3) / tensor.matrices;
    }
    return tensor;
  });
  cuda::adafactor(c.context, tensors, gradient_scale(c), &c.numbers->adamw, c.decay());
}

void muon_momentum(const Call& c) {
  // Update, gradient, moment.
  const auto tensors = tensors_of<3>(c, [&](std::size_t i, std::uint64_t) {
    return cuda::MuonMomentumTensor{c.tensor(i), c.tensor(i + 1), c.f32(i + 2), c.count(i)};
  });
  cuda::muon_momentum(c.context, tensors, gradient_scale(c), &c.numbers->adamw);
}

void apply_update(const Call& c) {
  // Parameter, update, master copy.
  const auto tensors = tensors_of<3>(c, [&](std::size_t i, std::uint64_t stream) {
    return cuda::MuonTensor{c.tensor(i), c.tensor(i + 1), c.f32(i + 2), c.count(i), stream};
  });
  cuda::apply_update(c.context, tensors, gradient_scale(c), &c.numbers->adamw, c.decay());
}

constexpr KernelEntry kKernels[] = {
    {OpKind::squared_norm, squared_norm},
    {OpKind::clip_scale,
     [](const Call& c) { cuda::clip_scale(c.context, c.as<cuda::GradientNorm>(0), &c.numbers->adamw); }},
    {OpKind::unscale, [](const Call& c) { cuda::find_overflow(c.context, c.f32(0), gradients_of(c)); }},
    // The device does not wait for the host: the update itself checks whether the norm is finite, so that a
    // step can be captured. The host reads the value when the step is over.
    {OpKind::host_read, [](const Call&) {}},
    {OpKind::adamw, adamw},
    {OpKind::adamw_8bit, adamw_8bit},
    {OpKind::adafactor, adafactor},
    {OpKind::lion,
     [](const Call& c) {
       cuda::lion(c.context, tensors_with_moment<cuda::LionTensor>(c), gradient_scale(c), &c.numbers->adamw,
                  c.decay());
     }},
    {OpKind::sgd,
     [](const Call& c) {
       cuda::sgd(c.context, tensors_with_moment<cuda::SgdTensor>(c), gradient_scale(c), &c.numbers->adamw,
                 c.decay());
     }},
    {OpKind::muon_momentum, muon_momentum},
    {OpKind::orthogonalise,
     [](const Call& c) {
       cuda::orthogonalise(c.context, c.products, c.tensor(0), {c.dims().groups, c.rows(), c.cols()},
                           c.tf32());
     }},
    {OpKind::apply_update, apply_update},
};

}  // namespace

std::span<const KernelEntry> cuda_optimizer_kernels() {
  return kKernels;
}

}  // namespace runtime
