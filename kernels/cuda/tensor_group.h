// Several tensors for one kernel: for small tensors, starting a kernel takes longer than reading them.
#pragma once
#include <algorithm>
#include <span>

#include "kernels/cuda/launch.h"

namespace kernels::cuda {

// A kernel's parameter. Each tensor has its own blocks of the grid, in the order of the tensors.
template <class T>
struct TensorGroup {
  static constexpr std::size_t kMost = 16;
  T of[kMost] = {};
  int first_block[kMost + 1] = {};  // of each tensor, and the number of all behind the last
};

// A block's tensor, and which of the tensor's blocks it is.
struct OwnTensor {
  int tensor, block, blocks;
};
template <class T>
CUDA_DEVICE OwnTensor own_tensor(const TensorGroup<T>& group) {
  int tensor = 0;
  while (group.first_block[tensor + 1] <= block_index().x) ++tensor;
  const int first = group.first_block[tensor];
  return {tensor, block_index().x - first, group.first_block[tensor + 1] - first};
}

// Calls body(group, blocks) for neighbouring tensors, in their order: as many at a time as are alike and as a
// group holds. blocks_of(tensor): how many blocks it gets.
template <class T, class Alike, class BlocksOf, class Body>
void in_groups(std::span<const T> tensors, const Alike& alike, const BlocksOf& blocks_of, const Body& body) {
  while (!tensors.empty()) {
    TensorGroup<T> group;
    std::size_t count = 0;
    int blocks = 0;
    while (count < std::min(tensors.size(), TensorGroup<T>::kMost) && alike(tensors[0], tensors[count])) {
      group.of[count] = tensors[count];
      group.first_block[count] = blocks;
      blocks += blocks_of(tensors[count]);
      ++count;
    }
    std::fill(group.first_block + count, std::end(group.first_block), blocks);
    body(group, blocks);
    tensors = tensors.subspan(count);
  }
}

}  // namespace kernels::cuda
