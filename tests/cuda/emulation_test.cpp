// The emulated GPU itself: what it must not forgive, because a GPU does not either.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_tile.h"
#include "tests/cuda/on_gpu.h"

using namespace kernels::cuda;

namespace {

constexpr int kThreads = 64;

CUDA_KERNEL(kThreads) reverse_kernel(float* out, const float* inp, bool with_barrier) {
  float* const shared = shared_memory<float>();
  shared[thread_index()] = inp[thread_index()];
  if (with_barrier) sync_block();
  out[thread_index()] = shared[block_size() - 1 - thread_index()];
}

std::vector<float> reversed(bool with_barrier, emulation::Order order) {
  std::vector<float> inp(kThreads), out(kThreads);
  for (int i = 0; i < kThreads; ++i) inp[static_cast<std::size_t>(i)] = static_cast<float>(i);
  emulation::set_order(order);
  start({}, {.threads = kThreads, .shared_bytes = kThreads * sizeof(float)}, reverse_kernel, out.data(),
        inp.data(), with_barrier);
  emulation::set_order(emulation::Order::ascending);
  return out;
}

CUDA_KERNEL(kThreads) divergent_barrier_kernel() {
  if (thread_index() < kThreads / 2) sync_block();
}

CUDA_KERNEL(kThreads) copy_kernel(float* out, const float* inp, bool with_wait) {
  float* const shared = shared_memory<float>();
  if (thread_index() < kThreads / 4) copy_async(shared + 4 * thread_index(), inp + 4 * thread_index(), true);
  commit_copies();
  if (with_wait) wait_for_copies<0>();
  sync_block();
  out[thread_index()] = shared[thread_index()];
}

CUDA_KERNEL(kThreads) sums_kernel(float* out, bool* any, std::uint32_t* votes) {
  out[thread_index()] = block_sum(static_cast<float>(thread_index()), shared_memory<float>());
  any[thread_index()] = any_in_block(thread_index() == 5) && !any_in_block(false);
  votes[thread_index()] = ballot(lane_index() % 3 == 0);
}

// out (16, 8) = a (16, 16) b (16, 8) by one warp, all row-major.
template <class T>
CUDA_KERNEL(kWarp)
product_kernel(float* out, const T* a, const T* b, bool b_is_transposed) {
  using ATile = SharedTile<16>;
  T* const a_tile = shared_memory<T>();
  T* const b_tile = a_tile + ATile::elements(16);
  for (int i = lane_index(); i < 256; i += kWarp) {
    a_tile[ATile::offset(i / 16, i % 16)] = a[i];
    b_tile[ATile::offset(i / 16, i % 16)] = b[i];
  }
  sync_warp();
  std::uint32_t rows[4], columns[4];
  load_a<16>(rows, a_tile, 0, 0);
  if (b_is_transposed)
    load_b_transposed<16>(columns, b_tile, 0, 0);
  else
    load_b<16>(columns, b_tile, 0, 0);
  for (int tile = 0; tile < 2; ++tile) {
    float sum[4] = {};
    multiply_add<T>(sum, rows, columns[2 * tile], columns[2 * tile + 1]);
    for (int i = 0; i < 4; ++i) {
      const Place place = accumulator_place(lane_index(), i);
      out[place.row * 16 + tile * 8 + place.column] = sum[i];
    }
  }
}

}  // namespace

TEST_CASE("a missing barrier gives different results in different orders of threads") {
  CHECK(reversed(true, emulation::Order::ascending) == reversed(true, emulation::Order::descending));
  CHECK(reversed(true, emulation::Order::ascending) == reversed(true, emulation::Order::shuffled));
  CHECK(reversed(false, emulation::Order::ascending) != reversed(false, emulation::Order::descending));
}

TEST_CASE("a barrier that some threads never reach is an error") {
  CHECK_THROWS_AS(start({}, {.threads = kThreads}, divergent_barrier_kernel), std::logic_error);
}

TEST_CASE("a copy that is not waited for has not arrived") {
  std::vector<float> inp(kThreads, 3.0f), out(kThreads);
  const Launch launch{.threads = kThreads, .shared_bytes = kThreads * sizeof(float)};
  start({}, launch, copy_kernel, out.data(), inp.data(), true);
  CHECK(out == inp);
  start({}, launch, copy_kernel, out.data(), inp.data(), false);
  for (const float x : out) CHECK(std::isnan(x));
}

TEST_CASE("sums, votes and flags of a block are known to all of its threads") {
  std::vector<float> sums(kThreads);
  std::vector<std::uint32_t> votes(kThreads);
  bool any[kThreads] = {};
  start({}, {.threads = kThreads, .shared_bytes = 2 * sizeof(float)}, sums_kernel, sums.data(), &any[0],
        votes.data());
  for (int i = 0; i < kThreads; ++i) {
    CHECK(sums[static_cast<std::size_t>(i)] == kThreads * (kThreads - 1) / 2);
    CHECK(any[i]);
    CHECK(votes[static_cast<std::size_t>(i)] == 0x49249249u);
  }
}

// The layouts of PTX's ldmatrix and mma as this emulation has them, against the definition of a product.
TEST_CASE("fragments loaded from tiles multiply as matrices do") {
  for (const Type type : {Type::bf16, Type::f16}) {
    const auto a = tests::normal_tensor(256, 1, type), b = tests::normal_tensor(256, 2, type);
    tests::DeviceArray a_array(a, type), b_array(b, type);
    for (const bool transposed : {false, true}) {
      CAPTURE(static_cast<int>(type), transposed);
      std::vector<float> out(256, NAN);
      with_16_bit_type(type, [&]<class T>(T) {
        start({}, {.threads = kWarp, .shared_bytes = 2 * SharedTile<16>::elements(16) * sizeof(T)},
              product_kernel<T>, out.data(), ConstTensor(a_array).as<T>(), ConstTensor(b_array).as<T>(),
              transposed);
      });
      for (int m = 0; m < 16; ++m)
        for (int n = 0; n < 16; ++n) {
          double sum = 0;
          for (int k = 0; k < 16; ++k)
            sum += static_cast<double>(a[static_cast<std::size_t>(m * 16 + k)]) *
                   b[static_cast<std::size_t>(transposed ? n * 16 + k : k * 16 + n)];
          CHECK(out[static_cast<std::size_t>(m * 16 + n)] == static_cast<float>(sum));
        }
    }
  }
}
