// Operations on 16-bit tensors by kernels of fp32: operands are widened before, and rounded once behind. It
// is how fp16 runs on a CPU, and bf16 where no kernel of its own is. What reaches the plan's memory is 16
// bits and sums are fp32; copies of one operation's operands lie beside it, in memory that no plan holds.
#pragma once
#include <vector>

#include "runtime/cpu/kernel_table.h"

namespace runtime {

class WidenedOperands {
 public:
  void run(const CpuKernelRow& row, const BoundOperation& operation, const RunSettings& settings);

 private:
  struct Copy {
    const BoundOperand* of = nullptr;
    float* wide = nullptr;
    bool is_read = false, is_written = false;
  };
  Copy& copy_of(const BoundOperand& operand);

  std::vector<Copy> copies_;
  std::vector<std::vector<float>> memory_;  // of copies, kept from one operation to the next
  std::vector<BoundOperand> operands_;
};

}  // namespace runtime
