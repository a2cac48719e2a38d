// Operations by kernels of a wider type than their tensors': operands are widened before, and rounded once
// behind. It is how fp16 runs on a CPU, bf16 where no kernel of its own is, and products in fp8, by the
// kernels of bf16, which holds all values of fp8. What reaches the plan's memory is 16 bits and sums are
// fp32; copies of one operation's operands lie beside it, in memory that no plan holds.
#pragma once
#include <vector>

#include "runtime/cpu/kernel_table.h"

namespace runtime {

class WidenedOperands {
 public:
  // `fp8`: the scales of tensors in fp8.
  void run(const CpuKernelRow& row, const BoundOperation& operation, Fp8Scales& fp8,
           const RunSettings& settings);

 private:
  struct Copy {
    const BoundOperand* of = nullptr;
    std::byte* wide = nullptr;
    bool is_read = false, is_written = false;
    float scale = 1;  // what is left to multiply the elements by
  };
  Copy& copy_of(const BoundOperand& operand);

  std::vector<Copy> copies_;
  std::vector<std::vector<float>> memory_;  // of copies, in floats; kept from one operation to the next
  std::vector<BoundOperand> operands_;
  std::vector<float> scales_;  // of operands_
};

}  // namespace runtime
