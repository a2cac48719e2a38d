// For a program that is linked with --wrap=__cpu_indicator_init: its processor has a Haswell's instructions,
// whatever it has. The compiler's library asks the processor once what it can, before the loader chooses
// among the versions of a function; here it then forgets what is newer, so that all that chooses by it
// (target_clones, __builtin_cpu_supports) takes AVX2.
#include "kernels/matmul_packed.h"
#include "kernels/packed_tile.h"
#include "kernels/vectorize.h"
#include "tests/support/catch.h"

extern "C" {
// As in libgcc's cpuinfo.
extern struct {
  unsigned vendor, type, subtype, features[1];
} __cpu_model __attribute__((visibility("hidden")));
extern unsigned __cpu_features2[3] __attribute__((visibility("hidden")));
int __real___cpu_indicator_init();

static bool has_more_than_haswell() {
  asm volatile("" ::: "memory");  // To the compiler its own names of these words are others than those above.
  return __builtin_cpu_supports("x86-64-v4") || __builtin_cpu_supports("avx512f") ||
         __builtin_cpu_supports("avx512vl") || __builtin_cpu_supports("avx512bw") ||
         __builtin_cpu_supports("avx512dq") || __builtin_cpu_supports("avx512vnni") ||
         __builtin_cpu_supports("avx512bf16") || __builtin_cpu_supports("avxvnni") ||
         __builtin_cpu_supports("amx-tile") || __builtin_cpu_supports("amx-bf16") ||
         __builtin_cpu_supports("amx-int8");
}

static bool has_avx2_itself = false;

int __wrap___cpu_indicator_init() {
  const int failed = __real___cpu_indicator_init();
  has_avx2_itself = has_avx2_itself || __builtin_cpu_supports("x86-64-v3");
  if (!has_more_than_haswell()) return failed;
  // Which bit means what is the compiler's affair: each is tried alone.
  unsigned* const words[4] = {&__cpu_model.features[0], &__cpu_features2[0], &__cpu_features2[1],
                              &__cpu_features2[2]};
  unsigned had[4], kept[4] = {};
  for (int w = 0; w < 4; ++w) {
    had[w] = *words[w];
    *words[w] = 0;
  }
  for (int w = 0; w < 4; ++w)
    for (unsigned bit = 1; bit != 0; bit <<= 1) {
      *words[w] = had[w] & bit;
      if (!has_more_than_haswell()) kept[w] |= *words[w];
      *words[w] = 0;
    }
  for (int w = 0; w < 4; ++w) *words[w] = kept[w];
  return failed;
}
}

TEST_CASE("The kernels of this program are a Haswell's") {
  CHECK((__builtin_cpu_supports("x86-64-v3") != 0) == has_avx2_itself);
  CHECK(!kernels::cpu::has_wide_vectors());
  CHECK(kernels::cpu::avx512_bf16_kernels() == nullptr);
  CHECK(kernels::cpu::amx_bf16_kernels() == nullptr);
  CHECK(kernels::cpu::fastest_fp32_products() == kernels::cpu::Fp32Products::blas);
}
