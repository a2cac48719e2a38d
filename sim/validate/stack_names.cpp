#include "sim/validate/stack_names.h"

#include "sim/validate/text_search.h"

namespace sim {
namespace {

bool before(std::string_view date, std::string_view limit) {
  return !date.empty() && date.substr(0, limit.size()) < limit;
}

}  // namespace

StackOfRow stack_of(std::string_view framework, std::string_view date, std::string_view notes,
                    std::string_view source) {
  const std::string f = lower(framework), n = lower(notes);
  const std::string from = lower(source);
  const bool compiled = says(n, "compile") && !says(n, "no compile");
  if (says_any(f, "llm-foundry", "composer", "mosaic"))
    return {before(date, "2023-12") ? "llm_foundry_2023" : "llm_foundry_2024"};
  if (says(f, "torchtitan"))
    return {says_any(n, "async tp", "asynctp") ? "torchtitan_async_tp"
            : says(n, "no compile") || (before(date, "2024-12") && !compiled &&
                                        says_any(from, "docs/performance", "torchtitan-docs"))
                ? "torchtitan_2024_eager"
            : before(date, "2025") ? "torchtitan_2024_compile"
                                   : "torchtitan_2025"};
  if (says(f, "picotron")) return {"picotron"};
  if (says_any(f, "nanotron", "ultrascale", "ultra-scale") || (f.empty() && says(from, "ultrascale")))
    return {"nanotron_2025"};
  if (says(f, "llmq")) return {"llmq"};
  if (says_any(f, "llm.c", "llmc")) return {"llmc"};
  if (says_any(f, "internevo", "internlm")) return {"internevo_2024"};
  if (says(f, "fms")) return {"fms_fsdp"};
  if (says(f, "neox")) return {"gpt_neox"};
  if (says(f, "easycontext")) return {"easycontext"};
  if (says(f, "megascale")) return {"megascale"};
  if (says(f, "metaseq") || says(f, "fairscale")) return {"metaseq"};
  if (says(f, "meta internal") || says(from, "llama 3 herd")) return {"meta_2024"};
  if (says(f, "hai-llm")) return {"deepseek_2024"};
  if (says(f, "colossal")) return {"colossalai"};
  if (says_any(f, "maxtext")) return {"maxtext_2026"};
  if (says_any(f, "pax", "jax", "t5x", "xla")) return {"pax_2024"};
  if (says_any(f, "olmo")) return {"olmo_core"};
  if (says_any(f, "lit-gpt", "litgpt", "tinyllama", "lightning")) return {"lit_gpt"};
  if (says(f, "megatron") && says(f, "deepspeed")) return {"megatron_deepspeed"};
  if (says(f, "deepspeed"))
    return says_any(f, "transformers", "accelerate", "hf") ? StackOfRow{"hf_zero3"}
                                                           : StackOfRow{"megatron_deepspeed", true};
  if (says_any(f, "bridge")) return {"mcore_te_2026"};
  if (says_any(f, "nemo", "dgxc")) return {before(date, "2025-08") ? "mcore_te_2024" : "mcore_te_2026"};
  if (says_any(f, "flash-attn", "flash-attention", "flashattention", "flash_attn") ||
      (f.empty() && says(from, "flashattention")))
    return {says_any(f, "megatron") ? "megatron_2022" : "flash_script"};
  if (says_any(f, "megatron", "mcore"))
    return {before(date, "2022")      ? "megatron_2021"
            : before(date, "2023-06") ? "megatron_2022"
                                      : "mcore_te_2024"};
  if (says_any(f, "accelerate", "transformers", "hugging", "hf ", "trl", "axolotl", "llama-factory"))
    return {says(n, "zero") ? "hf_zero3" : "hf_fsdp"};
  if (says(f, "fsdp")) return {compiled ? "fms_fsdp" : "hf_fsdp", true};
  // Nobody's profile: what large trainings of the time ran.
  return {before(date, "2022")      ? "megatron_2021"
          : before(date, "2023-06") ? "megatron_2022"
          : says(f, "pytorch")      ? "torchtitan_2024_eager"
                                    : "mcore_te_2024",
          true};
}

}  // namespace sim
