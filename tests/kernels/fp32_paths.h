// What forms products of fp32 (kernels/matmul_packed.h), chosen by a test: the fastest again at its end.
#pragma once
#include "kernels/matmul_packed.h"

namespace test {

struct FastestAgain {
  ~FastestAgain() { kernels::cpu::use_fp32_products(kernels::cpu::fastest_fp32_products()); }
};

}  // namespace test
