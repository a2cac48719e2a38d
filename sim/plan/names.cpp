#include "sim/plan/names.h"

#include "sim/enum_names.h"

namespace sim {
namespace {

constexpr std::array<EnumName<OpKind>, 67> kOpKinds{
    {{OpKind::embedding, "embedding"},
     {OpKind::embedding_backward, "embedding_backward"},
     {OpKind::layernorm, "layernorm"},
     {OpKind::layernorm_backward, "layernorm_backward"},
     {OpKind::rmsnorm, "rmsnorm"},
     {OpKind::rmsnorm_backward, "rmsnorm_backward"},
     {OpKind::matmul, "matmul"},
     {OpKind::matmul_backward_input, "matmul_backward_input"},
     {OpKind::matmul_backward_weight, "matmul_backward_weight"},
     {OpKind::grouped_matmul, "grouped_matmul"},
     {OpKind::grouped_matmul_backward_input, "grouped_matmul_backward_input"},
     {OpKind::grouped_matmul_backward_weight, "grouped_matmul_backward_weight"},
     {OpKind::route, "route"},
     {OpKind::route_backward, "route_backward"},
     {OpKind::permute, "permute"},
     {OpKind::unpermute, "unpermute"},
     {OpKind::qk_norm, "qk_norm"},
     {OpKind::qk_norm_backward, "qk_norm_backward"},
     {OpKind::rope, "rope"},
     {OpKind::rope_backward, "rope_backward"},
     {OpKind::attention_flash, "attention_flash"},
     {OpKind::attention_flash_backward, "attention_flash_backward"},
     {OpKind::attention_standard, "attention_standard"},
     {OpKind::attention_standard_backward, "attention_standard_backward"},
     {OpKind::kv_append, "kv_append"},
     {OpKind::attention_cached, "attention_cached"},
     {OpKind::gelu, "gelu"},
     {OpKind::gelu_backward, "gelu_backward"},
     {OpKind::relu, "relu"},
     {OpKind::relu_backward, "relu_backward"},
     {OpKind::squared_relu, "squared_relu"},
     {OpKind::squared_relu_backward, "squared_relu_backward"},
     {OpKind::swiglu, "swiglu"},
     {OpKind::swiglu_backward, "swiglu_backward"},
     {OpKind::geglu, "geglu"},
     {OpKind::geglu_backward, "geglu_backward"},
     {OpKind::add, "add"},
     {OpKind::dropout, "dropout"},
     {OpKind::dropout_backward, "dropout_backward"},
     {OpKind::gather_last, "gather_last"},
     {OpKind::zero, "zero"},
     {OpKind::cross_entropy_statistics, "cross_entropy_statistics"},
     {OpKind::cross_entropy, "cross_entropy"},
     {OpKind::sample, "sample"},
     {OpKind::squared_norm, "squared_norm"},
     {OpKind::clip_scale, "clip_scale"},
     {OpKind::unscale, "unscale"},
     {OpKind::host_read, "host_read"},
     {OpKind::adamw, "adamw"},
     {OpKind::adamw_8bit, "adamw_8bit"},
     {OpKind::adafactor, "adafactor"},
     {OpKind::sgd, "sgd"},
     {OpKind::muon_momentum, "muon_momentum"},
     {OpKind::orthogonalise, "orthogonalise"},
     {OpKind::apply_update, "apply_update"},
     {OpKind::copy_to_host, "copy_to_host"},
     {OpKind::copy_from_host, "copy_from_host"},
     {OpKind::attention_partial, "attention_partial"},
     {OpKind::attention_partial_backward, "attention_partial_backward"},
     {OpKind::attention_merge, "attention_merge"},
     {OpKind::exchange, "exchange"},
     {OpKind::all_reduce, "all_reduce"},
     {OpKind::reduce_scatter, "reduce_scatter"},
     {OpKind::all_gather, "all_gather"},
     {OpKind::all_to_all, "all_to_all"},
     {OpKind::send, "send"},
     {OpKind::receive, "receive"}}};

constexpr std::array<EnumName<BufferClass>, 8> kBufferClassNames{
    {{BufferClass::parameter, "parameter"},
     {BufferClass::gradient, "gradient"},
     {BufferClass::optimizer, "optimizer"},
     {BufferClass::activation, "activation"},
     {BufferClass::kv_cache, "kv_cache"},
     {BufferClass::scratch, "scratch"},
     {BufferClass::communication, "communication"},
     {BufferClass::input, "input"}}};
static_assert(kBufferClassNames.size() == kBufferClasses);

constexpr std::array<EnumName<Phase>, 6> kPhases{{{Phase::forward, "forward"},
                                                  {Phase::recompute, "recompute"},
                                                  {Phase::backward, "backward"},
                                                  {Phase::optimizer, "optimizer"},
                                                  {Phase::prefill, "prefill"},
                                                  {Phase::decode, "decode"}}};

}  // namespace

std::string_view name(OpKind kind) {
  return name_in(kOpKinds, kind);
}
std::optional<OpKind> op_kind_from_name(std::string_view text) {
  return value_in(kOpKinds, text);
}

std::string_view name(BufferClass c) {
  return name_in(kBufferClassNames, c);
}
std::optional<BufferClass> buffer_class_from_name(std::string_view text) {
  return value_in(kBufferClassNames, text);
}

std::string_view name(Phase phase) {
  return name_in(kPhases, phase);
}
std::optional<Phase> phase_from_name(std::string_view text) {
  return value_in(kPhases, text);
}

}  // namespace sim
