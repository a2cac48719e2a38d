// Rows of the table of kernels: activations and what else works element by element.
#include "kernels/elementwise.h"

#include <algorithm>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/bf16_rows.h"
#include "kernels/dropout.h"
#include "kernels/fp8.h"
#include "kernels/frozen_weights.h"
#include "runtime/cpu/kernel_table.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using K = sim::OpKind;
using R = sim::Role;
using A = Arguments;
using S = RunSettings;

// In bf16, by kernels of fp32.
template <cpu::ActivationForward Kernel>
void ungated(const A& a, const S&) {
  cpu::activation_forward(Kernel, a.b16(R::out), a.b16(R::inp), a.rows(), a.cols());
}
template <cpu::ActivationBackward Kernel>
void ungated_backward(const A& a, const S&) {
  cpu::activation_backward(Kernel, a.b16(R::dinp), a.b16(R::dout), a.b16(R::inp), a.rows(), a.cols());
}

// Statistics that are kept beside activations stay fp32.
constexpr ElementTypes kCopied = types(sim::DType::bf16, sim::DType::fp32);

// Pairs: where to, where from. Here the host's memory is the device's. One side of a shard may be padded.
void copy_pairs(const A& a, const S&) {
  for (std::size_t i = 0; i + 1 < a.operands(); i += 2)
    std::memcpy(a.as<std::byte>(i), a.as<std::byte>(i + 1),
                static_cast<std::size_t>(std::min(a.bytes(i), a.bytes(i + 1))));
}

template <class T>
void quantise(const A& a, const T* inp) {
  const Fp8Scales::Tensor& to = a.fp8->write(a.as<std::byte>(R::out), fp8_format(a.scalar()));
  *to.scale = cpu::quantise_fp8(a.as<std::uint8_t>(R::out), to.type, inp, a.find(R::out)->bytes);
}

template <class Out>
void expand(const A& a, const S&) {
  cpu::expand_frozen(a.as<Out>(R::out), a.frozen());
}
constexpr ElementTypes kFrozenCodes = types(sim::DType::int8, sim::DType::int4),
                       kFrozenScales = types(sim::DType::fp32, sim::DType::int8);

constexpr CpuKernelRow kRows[] = {
    {K::copy_to_host, copy_pairs},
    {K::copy_from_host, copy_pairs},
    {K::copy_to_host, copy_pairs, sim::DType::bf16, {{{R::host, kCopied}, {R::device, kCopied}}}},
    {K::copy_from_host, copy_pairs, sim::DType::bf16, {{{R::host, kCopied}, {R::device, kCopied}}}},
    {K::relu,
     [](const A& a, const S&) { cpu::relu_forward(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols()); }},
    {K::relu_backward,
     [](const A& a, const S&) {
       cpu::relu_backward(a.f32(R::dinp), a.f32(R::dout), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::squared_relu,
     [](const A& a, const S&) {
       cpu::squared_relu_forward(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols());
       if (a.row_weights().values)
         cpu::weigh_rows(a.f32(R::out), a.f32(R::out), a.rows(), a.cols(), a.row_weights());
     }},
    {K::squared_relu_backward,
     [](const A& a, const S&) {
       if (a.row_weights().values)
         cpu::weighted_squared_relu_backward(a.f32(R::dinp), a.f32(R::drow_weights), a.f32(R::dout),
                                             a.f32(R::inp), a.rows(), a.cols(), a.row_weights());
       else
         cpu::squared_relu_backward(a.f32(R::dinp), a.f32(R::dout), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::gelu,
     [](const A& a, const S&) { cpu::gelu_forward(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols()); }},
    {K::gelu_backward,
     [](const A& a, const S&) {
       cpu::gelu_backward(a.f32(R::dinp), a.f32(R::dout), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::gelu_exact,
     [](const A& a, const S&) { cpu::gelu_exact_forward(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols()); }},
    {K::gelu_exact_backward,
     [](const A& a, const S&) {
       cpu::gelu_exact_backward(a.f32(R::dinp), a.f32(R::dout), a.f32(R::inp), a.rows(), a.cols());
     }},
    {K::clamped_swiglu,
     [](const A& a, const S&) {
       cpu::clamped_swiglu_forward(a.f32(R::out), a.f32(R::gate_up), a.rows(), a.cols(), a.row_weights());
     }},
    {K::clamped_swiglu_backward,
     [](const A& a, const S&) {
       cpu::clamped_swiglu_backward(a.f32(R::dgate_up), a.f32(R::dout), a.f32(R::gate_up), a.rows(), a.cols(),
                                    a.row_weights(), a.f32(R::drow_weights));
     }},
    {K::weigh_rows,
     [](const A& a, const S&) {
       cpu::weigh_rows(a.f32(R::out), a.f32(R::inp), a.rows(), a.cols(), a.row_weights());
     }},
    {K::weigh_rows_backward,
     [](const A& a, const S&) {
       cpu::weigh_rows_backward(a.f32(R::dinp), a.f32(R::drow_weights), a.f32(R::dout), a.f32(R::inp),
                                a.f32(R::row_weights), a.rows(), a.cols());
     }},
    {K::swiglu,
     [](const A& a, const S&) {
       cpu::swiglu_forward(a.f32(R::out), a.f32(R::gate_up), a.rows(), a.cols(), a.row_weights());
     }},
    {K::swiglu_backward,
     [](const A& a, const S&) {
       cpu::swiglu_backward(a.f32(R::dgate_up), a.f32(R::dout), a.f32(R::gate_up), a.rows(), a.cols(),
                            a.row_weights(), a.f32(R::drow_weights));
     }},
    {K::geglu,
     [](const A& a, const S&) {
       cpu::geglu_forward(a.f32(R::out), a.f32(R::gate_up), a.rows(), a.cols(), a.row_weights());
     }},
    {K::geglu_backward,
     [](const A& a, const S&) {
       cpu::geglu_backward(a.f32(R::dgate_up), a.f32(R::dout), a.f32(R::gate_up), a.rows(), a.cols(),
                           a.row_weights(), a.f32(R::drow_weights));
     }},
    {K::add,
     [](const A& a, const S&) {
       if (a.find(R::out)->row_width > 0)
         return cpu::copy_rows(a.strided(R::out, a.cols()), a.strided_read(R::a, a.cols()), a.rows(),
                               a.cols());
       cpu::add(a.f32(R::out), a.f32(R::a), a.f32(R::b), a.rows(), a.cols());
       if (const float* const bias = a.f32(R::bias)) cpu::add_bias(a.f32(R::out), bias, a.rows(), a.cols());
     },
     sim::DType::fp32,
     {},
     true},
    {K::add_columns,
     [](const A& a, const S&) {
       cpu::add_columns(a.f32(R::out), a.f32(R::inp), a.scalar(), a.rows(), a.columns());
     }},
    {K::take_columns,
     [](const A& a, const S&) {
       cpu::take_columns(a.f32(R::out), a.f32(R::inp), a.scalar(), a.rows(), a.columns());
     }},
    {K::dropout,
     [](const A& a, const S& settings) {
       cpu::dropout_forward(a.f32(R::out), a.as<std::int8_t>(R::mask), a.f32(R::inp), a.f32(R::bias),
                            {.probability = settings.dropout,
                             .step = static_cast<std::uint32_t>(settings.adamw.step),
                             .seed = settings.dropout_seed,
                             .stream = a.random_stream()},
                            a.rows(), a.cols());
     },
     sim::DType::fp32,
     {{{R::mask, types(sim::DType::int8)}}}},
    {K::dropout_backward,
     [](const A& a, const S& settings) {
       cpu::dropout_backward(a.f32(R::dinp), a.f32(R::dout), a.as<std::int8_t>(R::mask), settings.dropout,
                             a.rows() * a.cols());
     },
     sim::DType::fp32,
     {{{R::mask, types(sim::DType::int8)}}}},
    {K::dequantise,
     expand<float>,
     sim::DType::fp32,
     {{{R::weight, kFrozenCodes}, {R::scale1, kFrozenScales}}}},
    {K::dequantise,
     expand<kernels::cuda::bf16>,
     sim::DType::bf16,
     {{{R::weight, kFrozenCodes}, {R::scale1, kFrozenScales}}}},
    {K::gather_last,
     [](const A& a, const S&) {
       cpu::gather_last(a.f32(R::out), a.f32(R::inp), a.batch(), a.query_length(), a.cols());
     }},
    {K::zero,
     [](const A& a, const S&) {
       constexpr std::int64_t kWord = sizeof(float);
       for (std::size_t i = 0; i < a.operands(); ++i) {
         if (const std::int64_t width = a.row_width(i); width > 0) {
           const std::int64_t rows = a.batch() * a.query_length();
           cpu::zero_rows({a.f32(i), width}, rows, a.count(i) / rows);
           continue;
         }
         const std::int64_t words = a.bytes(i) / kWord;
         cpu::zero(a.f32(i), words);
         std::memset(a.f32(i) + words, 0, static_cast<std::size_t>(a.bytes(i) % kWord));
       }
     },
     sim::DType::fp32,
     {{{R::buffer, types(sim::DType::fp32, sim::DType::bf16, sim::DType::fp16)}}},
     true},
    {K::relu, ungated<cpu::relu_forward>, sim::DType::bf16},
    {K::relu_backward, ungated_backward<cpu::relu_backward>, sim::DType::bf16},
    {K::squared_relu, ungated<cpu::squared_relu_forward>, sim::DType::bf16},
    {K::squared_relu_backward, ungated_backward<cpu::squared_relu_backward>, sim::DType::bf16},
    {K::gelu_exact, ungated<cpu::gelu_exact_forward>, sim::DType::bf16},
    {K::gelu_exact_backward, ungated_backward<cpu::gelu_exact_backward>, sim::DType::bf16},
    {K::geglu,
     [](const A& a, const S&) { cpu::geglu_forward(a.b16(R::out), a.b16(R::gate_up), a.rows(), a.cols()); },
     sim::DType::bf16},
    {K::geglu_backward,
     [](const A& a, const S&) {
       cpu::geglu_backward(a.b16(R::dgate_up), a.b16(R::dout), a.b16(R::gate_up), a.rows(), a.cols());
     },
     sim::DType::bf16},
    {K::take_columns,
     [](const A& a, const S&) {
       cpu::take_columns(a.b16(R::out), a.b16(R::inp), a.scalar(), a.rows(), a.columns());
     },
     sim::DType::bf16},
    {K::gelu,
     [](const A& a, const S&) { cpu::gelu_forward(a.b16(R::out), a.b16(R::inp), a.rows(), a.cols()); },
     sim::DType::bf16},
    {K::gelu_backward,
     [](const A& a, const S&) {
       cpu::gelu_backward(a.b16(R::dinp), a.b16(R::dout), a.b16(R::inp), a.rows(), a.cols());
     },
     sim::DType::bf16},
    {K::swiglu,
     [](const A& a, const S&) { cpu::swiglu_forward(a.b16(R::out), a.b16(R::gate_up), a.rows(), a.cols()); },
     sim::DType::bf16},
    {K::swiglu_backward,
     [](const A& a, const S&) {
       cpu::swiglu_backward(a.b16(R::dgate_up), a.b16(R::dout), a.b16(R::gate_up), a.rows(), a.cols());
     },
     sim::DType::bf16},
    {K::add,
     [](const A& a, const S&) {
       cpu::add(a.b16(R::out), a.b16(R::a), a.b16(R::b), a.rows(), a.cols());
       const kernels::cuda::bf16* const bias = a.b16(R::bias);
       for (std::int64_t row = 0; bias && row < a.rows(); ++row)
         cpu::add(a.b16(R::out) + row * a.cols(), a.b16(R::out) + row * a.cols(), bias, 1, a.cols());
     },
     sim::DType::bf16},
    {K::gather_last,
     [](const A& a, const S&) {
       // The last rows as they are.
       const std::int64_t T = a.query_length(), C = a.cols();
       for (std::int64_t b = 0; b < a.batch(); ++b)
         std::copy_n(a.b16(R::inp) + (b * T + T - 1) * C, C, a.b16(R::out) + b * C);
     },
     sim::DType::bf16},
    {K::quantise,
     [](const A& a, const S&) { quantise(a, a.f32(R::inp)); },
     sim::DType::fp32,
     {{{R::out, types(sim::DType::fp8)}}}},
    {K::quantise,
     [](const A& a, const S&) { quantise(a, a.b16(R::inp)); },
     sim::DType::bf16,
     {{{R::out, types(sim::DType::fp8)}}}},
};

}  // namespace

std::span<const CpuKernelRow> elementwise_kernels() {
  return kRows;
}

}  // namespace runtime
