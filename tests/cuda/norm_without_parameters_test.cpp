// LayerNorm without a gain and a bias on the GPU is that with a gain of 1 and a bias of 0.
#include "kernels/cuda/norm.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using tests::DeviceArray;
using tests::no_scratch;
using tests::normal_tensor;
using tests::Scratch;

TEST_CASE("a LayerNorm without parameters on the GPU is one whose gain is 1 and whose bias is 0") {
  constexpr float kEps = 1e-5f;
  for (const Type type : {Type::f32, Type::bf16})
    for (const std::int64_t C : {17, 64}) {
      constexpr std::int64_t R = 9;
      CAPTURE(C, static_cast<int>(type));
      const auto inp = normal_tensor(R * C, 1, type), dout = normal_tensor(R * C, 2, type);
      const auto outputs = [&](bool has) {
        DeviceArray x(inp, type), g(dout, type), w(std::vector<float>(static_cast<std::size_t>(C), 1), type),
            b(std::vector<float>(static_cast<std::size_t>(C), 0), type), out(R * C, type),
            dx(std::vector<float>(static_cast<std::size_t>(R * C), 0), type);
        DeviceArray mean(R, Type::f32), rstd(R, Type::f32), dw(C, Type::f32), db(C, Type::f32);
        Scratch scratch;
        cuda::layernorm_forward(no_scratch(), out, mean.f32(), rstd.f32(), x,
                                has ? cuda::ConstTensor(w) : cuda::ConstTensor(),
                                has ? cuda::ConstTensor(b) : cuda::ConstTensor(), kEps, R, C);
        cuda::layernorm_backward(scratch.context(), dx, has ? cuda::Tensor(dw) : cuda::Tensor(),
                                 has ? cuda::Tensor(db) : cuda::Tensor(), g, x,
                                 has ? cuda::ConstTensor(w) : cuda::ConstTensor(), mean.f32(), rstd.f32(), R,
                                 C);
        std::vector<float> all = out.values();
        for (const float v : dx.values()) all.push_back(v);
        return all;
      };
      // The compiler fuses products with sums as it likes in either: to the type's rounding.
      const std::vector<float> without = outputs(false), with = outputs(true);
      const double rounding = type == Type::f32 ? 0x1p-20 : 0x1p-7;
      for (std::size_t i = 0; i < with.size(); ++i)
        CHECK(without[i] == Approx(with[i]).epsilon(rounding).margin(rounding));
    }
}
