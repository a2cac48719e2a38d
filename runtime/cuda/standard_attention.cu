#include "kernels/cuda/attention.h"
#include "runtime/cuda/standard_attention.h"

namespace runtime {
namespace {

using cuda::ConstTensor;
using cuda::Tensor;

// For each sequence and group of query heads, whose keys are the same.
class StandardAttention {
 public:
  StandardAttention(const Call& call) : c_(call), s_(call.attention()) {}

  // Calls body(query heads of a key head, head, key head, b) so that all heads are covered by batched
  // products.
  template <class Body>
  void for_each_group(const Body& body) const {
    const std::int64_t heads = s_.H / s_.G;
    for (std::int64_t b = 0; b < s_.B; ++b)
      for (std::int64_t g = 0; g < s_.G; ++g) body(b, g * heads, g);
  }

  std::int64_t width() const { return (s_.H + 2 * s_.G) * s_.D; }
  template <class AnyTensor>
  AnyTensor packed(AnyTensor qkv, std::int64_t b, std::int64_t head) const {
    return at(qkv, b * s_.T * width() + head * s_.D);
  }
  template <class AnyTensor>
  AnyTensor heads(AnyTensor out, std::int64_t b, std::int64_t head) const {
    return at(out, (b * s_.T * s_.H + head) * s_.D);
  }
  template <class AnyTensor>
  AnyTensor scores(AnyTensor all, std::int64_t b, std::int64_t head) const {
    return at(all, (b * s_.H + head) * s_.T * s_.T);
  }

  void forward() const {
    const Tensor out = c_.tensor(0), probabilities = c_.tensor(1);
    const ConstTensor qkv = c_.tensor(2);
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.T, s_.D);
      p.a = packed(qkv, b, head), p.lda = width(), p.stride_a = s_.D;
      p.b = packed(qkv, b, s_.H + g), p.ldb = width(), p.transpose_b = true;
      p.out = scores(probabilities, b, head), p.stride_out = s_.T * s_.T;
      c_.products.run(c_.context, p);
    });
    cuda::causal_softmax_forward(c_.context, probabilities, s_, c_.tensor(sim::Role::sinks));
    const Tensor dropped = c_.tensor(4);
    if (dropped)
      cuda::dropout_forward(c_.context, dropped, c_.as<std::int8_t>(3), probabilities, {},
                            &c_.numbers->dropout, c_.random_stream(), s_.B * s_.H * s_.T, s_.T);
    const ConstTensor weights = dropped ? dropped : probabilities;
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.D, s_.T);
      p.a = scores(weights, b, head), p.stride_a = s_.T * s_.T;
      p.b = packed(qkv, b, s_.H + s_.G + g), p.ldb = width();
      p.out = heads(out, b, head), p.ldout = s_.H * s_.D, p.stride_out = s_.D;
      c_.products.run(c_.context, p);
    });
  }

  void backward() const {
    const Tensor dqkv = c_.tensor(0), dscores = c_.tensor(1);
    const ConstTensor dout = c_.tensor(2), qkv = c_.tensor(3), probabilities = c_.tensor(4);
    const std::int8_t* const mask = c_.as<std::int8_t>(5);
    const ConstTensor weights = mask != nullptr ? ConstTensor(c_.tensor(6)) : probabilities;
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.T, s_.D);
      p.a = heads(dout, b, head), p.lda = s_.H * s_.D, p.stride_a = s_.D;
      p.b = packed(qkv, b, s_.H + s_.G + g), p.ldb = width(), p.transpose_b = true;
      p.out = scores(dscores, b, head), p.stride_out = s_.T * s_.T;
      c_.products.run(c_.context, p);
      add_over_heads(packed(dqkv, b, s_.H + s_.G + g), scores(weights, b, head), heads(dout, b, head),
                     s_.H * s_.D);
    });
    if (mask != nullptr)
      cuda::dropout_backward(c_.context, dscores, dscores, mask, &c_.numbers->dropout, 0,
                             s_.B * s_.H * s_.T * s_.T);
    const Tensor dsinks = c_.tensor(sim::Role::dsinks);
    float* const of_sinks = dsinks ? c_.context.scratch_for<float>(s_.B * s_.H * s_.T) : nullptr;
    cuda::causal_softmax_backward(c_.context, dscores, probabilities, s_, of_sinks);
    if (dsinks) cuda::add_sinks_of_rows(c_.context, dsinks, c_.updates(sim::Role::dsinks), of_sinks, s_);
    for_each_group([&](std::int64_t b, std::int64_t head, std::int64_t g) {
      cuda::Product p = over_heads(s_.T, s_.D, s_.T);
      p.a = scores(ConstTensor(dscores), b, head), p.stride_a = s_.T * s_.T;
      p.b = packed(qkv, b, s_.H + g), p.ldb = width();
      p.out = packed(dqkv, b, head), p.ldout = width(), p.stride_out = s_.D;
      c_.products.run(c_.context, p);
      add_over_heads(packed(dqkv, b, s_.H + g), scores(ConstTensor(dscores), b, head), packed(qkv, b, head),
                     width());
    });
  }

 private:
  template <class AnyTensor>
  static AnyTensor at(AnyTensor tensor, std::int64_t element) {
    return from_row(tensor, element, 1);
  }
  cuda::Product over_heads(std::int64_t M, std::int64_t N, std::int64_t K) const {
    cuda::Product p{.M = M, .N = N, .K = K};
    p.batch = s_.H / s_.G, p.tf32 = c_.tf32();
    return p;
  }
  // out (T, D) of a key head = the sum over its query heads of scores^T (T, T) rows (T, D).
  void add_over_heads(Tensor out, ConstTensor of_scores, ConstTensor rows, std::int64_t row_width) const {
    for (std::int64_t h = 0; h < s_.H / s_.G; ++h) {
      cuda::Product p{.M = s_.T, .N = s_.D, .K = s_.T};
      p.tf32 = c_.tf32();
      p.a = at(of_scores, h * s_.T * s_.T), p.transpose_a = true;
      p.b = at(rows, h * s_.D), p.ldb = row_width;
      p.out = out, p.ldout = width();
      if (h > 0) p.addend = out;
      c_.products.run(c_.context, p);
    }
  }

  const Call& c_;
  kernels::AttentionShape s_;
};

}  // namespace

void standard_attention(const Call& call) {
  StandardAttention(call).forward();
}

void standard_attention_backward(const Call& call) {
  StandardAttention(call).backward();
}

}  // namespace runtime
