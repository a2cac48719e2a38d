// Rows of generation and serving: what they are taken for, and what is predicted of them.
#include "sim/validate/inference_row.h"
#include "sim/validate/software_names.h"
#include "sim/validate/table_validation.h"
#include "tests/support/catch.h"

using sim::csv_from_text;
using sim::CsvTable;
using sim::Validation;

namespace {

const std::string kHeader =
    "model_name,gpu,num_gpus,tp,pp,ep,precision_weights,precision_kv,batch,concurrency,input_len,output_len,"
    "ttft_ms,tpot_ms,total_latency_ms,decode_tok_s,tok_s_per_gpu,total_output_tok_s,framework,date,notes\n";

Validation validated(const std::string& rows) {
  return validate_table(csv_from_text(kHeader + rows, "table.csv"));
}

double predicted(const sim::ValidatedRow& row, std::string_view column) {
  for (const sim::Prediction& p : row.predictions)
    if (p.column == column) return p.value;
  return 0;
}

}  // namespace

TEST_CASE("engines and their versions by what tables call them") {
  struct Named {
    const char *framework, *date, *preset;
  };
  const Named n = GENERATE(
      Named{"gpt-fast (torch.compile)", "2023-11", "gpt_fast"},
      Named{"FasterTransformer", "2022", "fastertransformer"},
      Named{"TensorRT-LLM 0.5", "2023-10", "tensorrt_llm_0.6"},
      Named{"TensorRT-LLM 0.6.1", "2023-12", "tensorrt_llm_0.6"},
      Named{"TensorRT-LLM v0.17.0", "2025-01", "tensorrt_llm_0.18"},
      Named{"TensorRT-LLM 1.0 (trtllm-bench)", "2025-09", "tensorrt_llm_1.0"},
      Named{"TensorRT-LLM (trtllm-bench)", "2025-12", "tensorrt_llm_1.0"}, Named{"vLLM", "2023", "vllm_0.2"},
      Named{"vLLM 0.5.3", "2024-07", "vllm_0.5"}, Named{"vLLM 0.6.2", "2024-10", "vllm_0.6"},
      Named{"vLLM 0.21", "2026", "vllm_0.14"}, Named{"SGLang v0.4.1", "2025", "sglang_0.4"},
      Named{"llama.cpp", "2024-03", "llama_cpp"}, Named{"HF Transformers", "2023", "transformers_eager"},
      Named{"Megatron-LM (inference)", "2022", "megatron_inference_2021"},
      Named{"DeepSpeed-MII", "2024", "deepspeed_inference"});
  CAPTURE(n.framework);
  CHECK(sim::serving_software(n.framework, n.date).presets.front() == n.preset);
  CHECK_FALSE(sim::serving_software(n.framework, n.date).nearest);
  CHECK(sim::serving_software("an engine of one's own", "2026").nearest);
}

TEST_CASE("a row that does not say what was asked of the engine is refused, its rate of requests is enough") {
  const std::string silent =
      "Llama-3.3-70B,A100-80GB-PCIe,4,4,,,bf16,,,,,,,44.9,,,,198.5,vLLM,2025,request rate 1/s";
  const Validation refused = validated(silent + "\n");
  CHECK(refused.rows[0].predictions.empty());
  CHECK_THAT(refused.rows[0].why_not, contains("requests_per_second"));
  std::string header = kHeader;
  header.insert(header.size() - 1, ",requests_per_second");
  const Validation read = sim::validate_table(csv_from_text(header + silent + ",1\n", "table.csv"));
  REQUIRE(read.rows[0].why_not.empty());
  // Some 200 tokens a request are taken where a row does not say; one request a second.
  const double rate = predicted(read.rows[0], "total_output_tok_s");
  CHECK(rate > 100);
  CHECK(rate < 300);
}

TEST_CASE("what was measured is never read: empty cells give the same predictions") {
  const std::string head = "Llama-2-7B,A100-80GB,1,1,,,bf16,bf16,1,,5,200,", tail = ",gpt-fast,2023-11,\n";
  const Validation full = validated(head + "1,2,3,4,5,6" + tail), empty = validated(head + ",,,,," + tail);
  REQUIRE(full.rows[0].why_not.empty());
  REQUIRE(full.rows[0].predictions.size() == empty.rows[0].predictions.size());
  for (std::size_t i = 0; i < full.rows[0].predictions.size(); ++i)
    CHECK(full.rows[0].predictions[i].value == empty.rows[0].predictions[i].value);
  // The tokens of all the time, the prefill's too.
  CHECK(predicted(full.rows[0], "decode_tok_s") ==
        Approx(200e3 / predicted(full.rows[0], "total_latency_ms")));
}

TEST_CASE("a row says what cannot be predicted of it, by its column") {
  const Validation v = validated(
      "Nobody-7B,A100-80GB,1,1,,,bf16,,1,,5,200,,,,,,,gpt-fast,2023,\n"
      "Llama-2-7B,a quantum computer,1,1,,,bf16,,1,,5,200,,,,,,,gpt-fast,2023,\n"
      "Llama-2-7B,A100-80GB,1,1,,,bf17,,1,,5,200,,,,,,,gpt-fast,2023,\n"
      "Llama-2-7B,A100-80GB,1,1,,,bf16,,1.5,,5,200,,,,,,,gpt-fast,2023,\n"
      "Llama-2-7B,A100-80GB,3,3,,,bf16,,1,,5,200,,,,,,,gpt-fast,2023,\n");
  const char* const words[] = {"Nobody-7B", "quantum", "precision_weights", "batch", "tensor_parallel"};
  for (std::size_t i = 0; i < v.rows.size(); ++i) {
    CHECK(v.rows[i].predictions.empty());
    CHECK_THAT(v.rows[i].why_not, contains(words[i]));
  }
}

TEST_CASE("a row without a batch of an engine that batches by itself is its best throughput") {
  const Validation v = validated(
      "Llama 3.1 8B,H100-80GB-SXM (DGX),1,1,,,fp8,,,,2048,128,,,,,,,TensorRT-LLM 1.0 "
      "(trtllm-bench),2025-09,\n"
      "Llama 3.1 8B,H200-141GB-SXM (DGX),1,1,,,fp8,,,,2048,128,,,,,,,TensorRT-LLM 1.0 "
      "(trtllm-bench),2025-09,\n"
      "Llama 3.1 8B,H100-80GB-SXM (DGX),1,1,,,fp8,,,8,2048,128,,,,,,,TensorRT-LLM 1.0,2025-09,\n");
  const double best = predicted(v.rows[0], "total_output_tok_s");
  // docs/source/performance/perf-overview.md of v1.0: 3450 on H100, 3538 on H200.
  CHECK(best == Approx(3450).epsilon(0.1));
  CHECK(predicted(v.rows[1], "total_output_tok_s") == Approx(3538).epsilon(0.1));
  CHECK(predicted(v.rows[2], "total_output_tok_s") < best);
  CHECK(predicted(v.rows[2], "ttft_ms") < predicted(v.rows[0], "ttft_ms"));
}
