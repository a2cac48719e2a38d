// What the emulated GPU must not forgive of kernels that copy by TMA and multiply by warpgroups.
#include "kernels/cuda/hopper/pipeline.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda/on_gpu.h"

using namespace kernels::cuda;

namespace {

constexpr int kRows = 8, kColumns = 64;

struct CopyOptions {
  bool waits = true, initialises = true;
  int expected_bytes = kRows * kColumns * 2, arrivals = 1;
};

// Thread 0 copies a box of 8 tokens; all write what they then see of it.
CUDA_KERNEL(2 * kWarp)
copy_box_kernel(float* out, CUDA_GRID_CONSTANT TensorMap map, int token, CopyOptions options) {
  bf16* const tile = aligned_shared_memory<bf16>();
  PhaseBarrier* const barrier = reinterpret_cast<PhaseBarrier*>(tile + SwizzledTile::elements(kRows));
  if (thread_index() == 0 && options.initialises) {
    init_barrier(barrier, options.arrivals);
    publish_barriers();
  }
  sync_block();
  if (thread_index() == 0) {
    arrive_and_expect(barrier, options.expected_bytes);
    load_box(tile, map, 0, 1, token, 0, barrier);
  }
  if (options.waits) wait_for_phase(barrier, 0);
  for (int i = thread_index(); i < kRows * kColumns; i += block_size())
    out[i] = to_float(tile[SwizzledTile::offset(i / kColumns, i % kColumns)]);
}

constexpr std::int64_t kTokens = 20, kHeads = 3;

std::vector<float> copied(const std::vector<float>& rows, int token, const CopyOptions& options) {
  tests::DeviceArray array(rows, Type::bf16);
  std::vector<float> out(kRows * kColumns, 0);
  const Heads<const bf16> heads{ConstTensor(array).as<bf16>(), kHeads * kColumns, kColumns};
  start({}, {.threads = 2 * kWarp, .shared_bytes = 4096}, copy_box_kernel, out.data(),
        map_heads(heads, kHeads, kTokens, 1, kRows), token, options);
  return out;
}

enum class Misuse { none, reads_early, frees_early };

// sums (64, 64) = a (64, 16 of 64) b (64, 16 of 64) transposed, by a warpgroup.
CUDA_KERNEL(kWarpgroup)
product_kernel(float* out, const bf16* a, const bf16* b, Misuse misuse) {
  bf16* const a_tile = aligned_shared_memory<bf16>();
  bf16* const b_tile = a_tile + SwizzledTile::elements(64);
  for (int i = thread_index(); i < 64 * 64; i += block_size()) {
    a_tile[SwizzledTile::offset(i / 64, i % 64)] = a[i];
    b_tile[SwizzledTile::offset(i / 64, i % 64)] = b[i];
  }
  sync_block();
  WarpgroupSums<64> sums = {};
  begin_products();
  for (int column = 0; column < 64; column += 16) multiply_rows(sums, a_tile, b_tile, column, column > 0);
  commit_products();
  if (misuse == Misuse::frees_early)
    for (int i = thread_index(); i < 64 * 64; i += block_size()) b_tile[i] = {};
  if (misuse != Misuse::reads_early) wait_for_products<0>(sums);
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i) {
      const Place place = accumulator_place(lane_index(), i);
      out[(warp_index() * 16 + place.row) * 64 + n * 8 + place.column] = sums[n][i];
    }
}

CUDA_KERNEL(2 * kWarp) turns_kernel(float* out, bool second_comes) {
  // The first warp writes, the second reads when it has come to the barrier that the first only arrives at.
  float* const shared = shared_memory<float>();
  if (warp_index() == 0) {
    shared[lane_index()] = static_cast<float>(lane_index());
    arrive_threads(1, 2 * kWarp);
  } else if (second_comes) {
    sync_threads(1, 2 * kWarp);
    out[lane_index()] = shared[lane_index()];
  }
}

}  // namespace

TEST_CASE(
    "a box of a tensor arrives swizzled, with zeros for what lies outside, when its barrier is waited for") {
  const auto rows = tests::normal_tensor(kTokens * kHeads * kColumns, 1, Type::bf16);
  for (const int token : {0, 5, 16}) {
    const auto box = copied(rows, token, {});
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        const std::int64_t t = token + row;
        CHECK(box[static_cast<std::size_t>(row * kColumns + column)] ==
              (t < kTokens ? rows[static_cast<std::size_t>((t * kHeads + 1) * kColumns + column)] : 0.0f));
      }
  }
}

TEST_CASE("what a pipeline forgets is an error, or shows as NaN") {
  const auto rows = tests::normal_tensor(kTokens * kHeads * kColumns, 1, Type::bf16);
  SECTION("a copy that nobody waits for") {
    CHECK_THROWS_AS(copied(rows, 0, {.waits = false}), std::logic_error);
  }
  SECTION("a barrier that was not initialised") {
    CHECK_THROWS_AS(copied(rows, 0, {.initialises = false}), std::logic_error);
  }
  SECTION("bytes that the barrier was not told of") {
    CHECK_THROWS_AS(copied(rows, 0, {.expected_bytes = kRows * kColumns * 4}), std::logic_error);
  }
  SECTION("an arrival that never comes") {
    CHECK_THROWS_AS(copied(rows, 0, {.arrivals = 2}), std::logic_error);
  }
  SECTION("an arrival at a numbered barrier that nobody waits at") {
    std::vector<float> out(kWarp);
    const Launch launch{.threads = 2 * kWarp, .shared_bytes = kWarp * sizeof(float)};
    start({}, launch, turns_kernel, out.data(), true);
    for (int i = 0; i < kWarp; ++i) CHECK(out[static_cast<std::size_t>(i)] == static_cast<float>(i));
    CHECK_THROWS_AS(start({}, launch, turns_kernel, out.data(), false), std::logic_error);
  }
}

TEST_CASE("a warpgroup's product is there when it has been waited for, and of what its tiles then hold") {
  const auto a = tests::normal_tensor(64 * 64, 1, Type::bf16),
             b = tests::normal_tensor(64 * 64, 2, Type::bf16);
  tests::DeviceArray a_array(a, Type::bf16), b_array(b, Type::bf16);
  const auto product = [&](Misuse misuse) {
    std::vector<float> out(64 * 64);
    start({}, {.threads = kWarpgroup, .shared_bytes = 2 * 8192 + 1024}, product_kernel, out.data(),
          ConstTensor(a_array).as<bf16>(), ConstTensor(b_array).as<bf16>(), misuse);
    return out;
  };
  std::vector<float> expected(64 * 64);
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t n = 0; n < 64; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < 64; ++k) sum += static_cast<double>(a[m * 64 + k]) * b[n * 64 + k];
      expected[m * 64 + n] = static_cast<float>(sum);
    }
  const auto right = product(Misuse::none);
  // In each of the four products the sum is rounded once to fp32.
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(right[i] == Approx(expected[i]).margin(4 * 0x1p-24 * 64));
  CHECK(product(Misuse::reads_early) != right);
  CHECK(product(Misuse::frees_early) != right);
}
