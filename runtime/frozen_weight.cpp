#include "runtime/frozen_weight.h"

namespace runtime {
namespace {

const sim::Buffer& buffer_of(const sim::Plan& plan, sim::BufferId id) {
  return plan.buffers[static_cast<std::size_t>(id)];
}

}  // namespace

std::optional<kernels::FrozenFormat> frozen_format(sim::FrozenWeights stored) {
  switch (stored) {
    case sim::FrozenWeights::int8:
      return kernels::FrozenFormat::int8;
    case sim::FrozenWeights::nf4:
      return kernels::FrozenFormat::nf4;
    case sim::FrozenWeights::nf4_double:
      return kernels::FrozenFormat::nf4_double;
    case sim::FrozenWeights::as_dtype:
      break;
  }
  return std::nullopt;
}

kernels::FrozenWeight frozen_weight(sim::DType codes, std::int64_t count, sim::DType scale,
                                    std::int64_t scales) {
  using Format = kernels::FrozenFormat;
  const Format format = codes == sim::DType::int8   ? Format::int8
                        : scale == sim::DType::int8 ? Format::nf4_double
                                                    : Format::nf4;
  return {.format = format,
          .count = count,
          .group = format == Format::int8 ? count / scales : kernels::FrozenWeight::kBlock};
}

bool is_frozen_weight(const sim::Plan& plan, sim::BufferId buffer) {
  const sim::Buffer& of = buffer_of(plan, buffer);
  return sim::stored_frozen(plan.scenario.workload) != sim::FrozenWeights::as_dtype &&
         of.buffer_class == sim::BufferClass::parameter && of.parameter == sim::kNoBuffer &&
         sim::bits(of.dtype) < 16;
}

std::vector<sim::BufferId> buffers_beside(const sim::Plan& plan, sim::BufferId parameter) {
  std::vector<sim::BufferId> beside;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].buffer_class == sim::BufferClass::parameter && plan.buffers[b].parameter == parameter)
      beside.push_back(static_cast<sim::BufferId>(b));
  return beside;
}

FrozenCopy::FrozenCopy(const sim::Plan& plan, sim::BufferId weight) {
  const std::vector<sim::BufferId> beside = buffers_beside(plan, weight);
  const sim::Buffer &codes = buffer_of(plan, weight), &scales = buffer_of(plan, beside.front());
  weight_ = frozen_weight(codes.dtype, codes.elements({}), scales.dtype, scales.elements({}));
  parts_.push_back({weight, {}});
  for (const sim::BufferId buffer : beside) parts_.push_back({buffer, {}});
  for (Part& part : parts_)
    part.bytes.resize(static_cast<std::size_t>(buffer_of(plan, part.buffer).bytes({}).value));
  weight_.codes = parts_[0].bytes.data();
  weight_.scales = parts_[1].bytes.data();
  if (parts_.size() > 2) weight_.scales_of_scales = reinterpret_cast<float*>(parts_[2].bytes.data());
}

}  // namespace runtime
