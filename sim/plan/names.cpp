#include "sim/plan/names.h"

#include "sim/enum_names.h"

namespace sim {
namespace {

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

constexpr std::array<EnumName<Axis>, 11> kAxisNames{{{Axis::tensor, "tensor"},
                                                     {Axis::key_value, "key_value"},
                                                     {Axis::context, "context"},
                                                     {Axis::data, "data"},
                                                     {Axis::shard, "shard"},
                                                     {Axis::replica, "replica"},
                                                     {Axis::expert, "expert"},
                                                     {Axis::expert_data, "expert_data"},
                                                     {Axis::pipeline, "pipeline"},
                                                     {Axis::directions, "directions"},
                                                     {Axis::tied_embedding, "tied_embedding"}}};

}  // namespace

std::string_view name(BufferClass c) {
  return name_in(kBufferClassNames, c);
}
std::optional<BufferClass> buffer_class_from_name(std::string_view text) {
  return value_in(kBufferClassNames, text);
}

std::string_view name(Axis axis) {
  return name_in(kAxisNames, axis);
}

std::string_view name(Phase phase) {
  return name_in(kPhases, phase);
}
std::optional<Phase> phase_from_name(std::string_view text) {
  return value_in(kPhases, text);
}

}  // namespace sim
