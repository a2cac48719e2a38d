#include "sim/validate/table_validation.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "sim/json_object.h"
#include "sim/scenario/preset.h"
#include "sim/validate/table_words.h"
#include "tests/support/catch.h"

using sim::CsvTable;

namespace {

// Rows of each kind of table, as their publishers write them (github.com/ai-dynamo/aiconfigurator and
// Dao-AILab/flash-attention), some beyond what can be predicted.
const std::string kProducts =
    "gpu,framework,dtype,m,n,k,latency_ms\n"
    "A100-SXM4-80GB,SGLang 0.5.10,bfloat16,4096,4096,4096,0.55\n"
    "H100-80GB-SXM,TRTLLM 1.3.0rc10,fp8,1,32,2560,0.0121\n"
    "H100-80GB-SXM,TRTLLM 1.3.0rc10,bfloat16,many,32,2560,0.0121\n"
    "TPU v4,JAX,bfloat16,1,32,2560,0.0121\n";
const std::string kKernels =
    "id,source,gpu,kernel,pass,dtype,m,n,k,batch,heads,kv_heads,head_dim,seq_q,seq_kv,causal,latency_ms,"
    "tflops,"
    "bandwidth_gbps,library\n"
    "k1,\"charts, FlashAttention\",H100-80GB-SXM5,attention,fwd,fp16,,,,4,32,32,64,4096,4096,n,,476,,"
    "FlashAttention3\n"
    "k2,serving,H100-80GB-SXM,attention prefill,fwd,bf16,,,,8,32,8,128,4096,4096,y,1.7,,,VLLM 0.19.0\n"
    "k3,serving,H100-80GB-SXM,attention decode,fwd,bf16,,,,8,32,8,128,1,4096,y,0.054,,2462.7,VLLM 0.19.0\n"
    "k4,serving,A100-SXM4-80GB,GEMM,fwd,bfloat16,8192,8192,8192,,,,,,,,4.3,257,,TRTLLM 1.0.0 (torch_flow)\n"
    "k5,threads,A100-SXM,device-to-device local copy,,,,,,,,,,,,,,,1581,\n";
const std::string kCollectives =
    "source,gpu,num_gpus,num_nodes,collective,message_bytes,time_us,algbw_gbps,busbw_gbps,library\n"
    "x,H200-SXM,8,1,all_reduce,536870912,2000,,,NCCL 2.29.2\n"
    "x,A100-SXM (NVSwitch),3,1,all_reduce,1048576,,,20,NCCL (nccl-tests out-of-place)\n"
    "y,H100-SXM,64,8,reduce_scatter,,,,300,NCCL nccl-tests\n"
    "y,H100-SXM,8,1,all_to_all dispatch,,,,158,DeepEP\n";

std::string cell(const CsvTable& table, std::size_t row, const std::string& column) {
  const auto found = std::find(table.header.begin(), table.header.end(), column);
  REQUIRE(found != table.header.end());
  return table.rows[row][static_cast<std::size_t>(found - table.header.begin())];
}

CsvTable predicted(const CsvTable& table) {
  return sim::with_predictions(table, sim::validate_table(table));
}

}  // namespace

TEST_CASE("a table reads back as it was written, whatever its cells hold") {
  std::mt19937 random(4);
  const std::string alphabet = "a,\"\r\n 7;\xC3\xA9";
  std::uniform_int_distribution<std::size_t> letter(0, alphabet.size() - 1), length(0, 6);
  for (int trial = 0; trial < 200; ++trial) {
    CsvTable table{{"first", "second", "third"}, {}};
    for (int r = 0; r < 5; ++r) {
      std::vector<std::string> row(3);
      for (std::string& text : row)
        for (std::size_t i = length(random); i > 0; --i) text += alphabet[letter(random)];
      table.rows.push_back(row);
    }
    const CsvTable again = sim::csv_from_text(sim::to_text(table), "t.csv");
    CHECK(again.header == table.header);
    CHECK(again.rows == table.rows);
  }
}

TEST_CASE("a table may begin with a byte order mark, end lines with CRLF, and lack the last line's end") {
  const CsvTable table = sim::csv_from_text("\xEF\xBB\xBFm,n\r\n1,\"2 \"\"or\"\" 3\"\r\n4,5", "t.csv");
  CHECK(table.header == std::vector<std::string>{"m", "n"});
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0][1] == "2 \"or\" 3");
  CHECK(table.rows[1] == std::vector<std::string>{"4", "5"});
}

TEST_CASE("a table that is none is refused by file and line") {
  const auto refuses = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_AS(sim::csv_from_text(text, "t.csv"), sim::PresetError);
    CHECK_THROWS_WITH(sim::csv_from_text(text, "t.csv"), contains("t.csv") && contains(what));
  };
  refuses("", "empty");
  refuses("m,n\n1,2\n1,2,3\n", "line 3 has 3 cells where the header has 2");
  refuses("m,n\n\"a\nb\",1\n1\n", "line 4 has 1 cells");
  refuses("m,n\n1,\"2\n3,4\n", "line 2 opens a quote that is never closed");
  refuses("m,n\n1,\"2\"3\n", "line 2 has a quoted cell that goes on");
  refuses("m,m\n1,2\n", "\"m\" twice");
  refuses("m,,n\n1,2,3\n", "column 2 has no name");
  refuses(std::string("m\n\0\n", 4), "a zero at byte 3");
}

TEST_CASE("predictions never depend on what was measured") {
  for (const std::string& text : {kProducts, kKernels, kCollectives}) {
    const CsvTable table = sim::csv_from_text(text, "t.csv");
    const sim::Validation validation = sim::validate_table(table);
    REQUIRE(validation.reader != nullptr);
    CsvTable blank = table, wrong = table;
    for (std::size_t column = 0; column < table.header.size(); ++column)
      for (const sim::MeasuredColumn& measured : validation.reader->measured)
        if (measured.name == table.header[column])
          for (std::size_t row = 0; row < table.rows.size(); ++row) {
            blank.rows[row][column].clear();
            wrong.rows[row][column] = "not even a number";
          }
    REQUIRE(blank.rows != table.rows);
    const CsvTable expected = predicted(table);
    for (const CsvTable& other : {predicted(blank), predicted(wrong)})
      for (std::size_t row = 0; row < table.rows.size(); ++row)
        CHECK(std::equal(expected.rows[row].begin() + static_cast<std::ptrdiff_t>(table.header.size()),
                         expected.rows[row].end(),
                         other.rows[row].begin() + static_cast<std::ptrdiff_t>(table.header.size()),
                         other.rows[row].end()));
  }
}

TEST_CASE("the table comes back whole and in order, with predictions or the reason why not") {
  for (const std::string& text : {kProducts, kKernels, kCollectives}) {
    const CsvTable table = sim::csv_from_text(text, "t.csv");
    const sim::Validation validation = sim::validate_table(table);
    const CsvTable out = sim::with_predictions(table, validation);
    REQUIRE(out.rows.size() == table.rows.size());
    const auto width = static_cast<std::ptrdiff_t>(table.header.size());
    CHECK(std::vector<std::string>(out.header.begin(), out.header.begin() + width) == table.header);
    for (std::size_t row = 0; row < out.rows.size(); ++row) {
      CHECK(out.rows[row].size() == out.header.size());
      CHECK(std::vector<std::string>(out.rows[row].begin(), out.rows[row].begin() + width) ==
            table.rows[row]);
      CHECK(validation.rows[row].predictions.empty() != validation.rows[row].why_not.empty());
      for (const sim::Prediction& p : validation.rows[row].predictions) {
        CHECK(p.low > 0);
        CHECK(p.low < p.value);
        CHECK(p.value < p.high);
      }
    }
  }
}

TEST_CASE("a row that cannot be predicted says what stands in the way") {
  const CsvTable products = predicted(sim::csv_from_text(kProducts, "t.csv"));
  CHECK_THAT(cell(products, 2, "why_not"), contains("m is \"many\""));
  CHECK_THAT(cell(products, 3, "why_not"), contains("TPU v4"));
  const CsvTable kernels = predicted(sim::csv_from_text(kKernels, "t.csv"));
  CHECK_THAT(cell(kernels, 4, "why_not"), contains("device-to-device local copy"));
  const CsvTable collectives = predicted(sim::csv_from_text(kCollectives, "t.csv"));
  CHECK_THAT(cell(collectives, 3, "why_not"), contains("all_to_all dispatch"));
  const CsvTable unknown = predicted(sim::csv_from_text("colour\nred\n", "t.csv"));
  CHECK_THAT(cell(unknown, 0, "why_not"), contains("message_bytes"));
}

TEST_CASE("time, rate and band of a row agree with each other") {
  const CsvTable out = predicted(sim::csv_from_text(kKernels, "t.csv"));
  const auto value = [&](const std::string& column) { return std::stod(cell(out, 3, column)); };
  const double flops = 2.0 * 8192 * 8192 * 8192;
  // Cells have six digits.
  CHECK(value("predicted_tflops") == Approx(flops / value("predicted_latency_ms") / 1e9).epsilon(1e-5));
  CHECK(value("predicted_tflops_low") ==
        Approx(flops / value("predicted_latency_ms_high") / 1e9).epsilon(1e-5));
}

TEST_CASE("errors are of times, of rates the other way round, and counted by source and GPU") {
  CsvTable table = sim::csv_from_text(kKernels, "t.csv");
  const CsvTable out = predicted(table);
  // A quarter too slow by every row that can be compared.
  const auto set = [&](std::size_t row, const std::string& column, double measured) {
    const auto at = std::find(table.header.begin(), table.header.end(), column) - table.header.begin();
    table.rows[row][static_cast<std::size_t>(at)] = std::to_string(measured);
  };
  set(0, "tflops", 1.25 * std::stod(cell(out, 0, "predicted_tflops")));
  for (const std::size_t row : {1, 2, 3})
    set(row, "latency_ms", std::stod(cell(out, row, "predicted_latency_ms")) / 1.25);
  const std::vector<sim::ErrorSummary> summaries = sim::summarize(table, sim::validate_table(table));
  REQUIRE(summaries.size() == 5);  // all; charts, serving on two GPUs, threads
  CHECK(summaries[0].rows == 5);
  CHECK(summaries[0].predicted == 4);
  CHECK(summaries[0].compared == 4);
  CHECK(summaries[0].median == Approx(0.25).epsilon(1e-3));
  CHECK(summaries[0].bias == Approx(0.25).epsilon(1e-3));
  CHECK(summaries[2].source == "serving");
  CHECK(summaries[2].gpu == "h100-sxm");
  CHECK(summaries[2].rows == 2);
  CHECK(summaries[4].compared == 0);
}

TEST_CASE("every name of a list of table words means its own entry, which exists") {
  const std::string path = (sim::preset_directory() / "table_words.json").string();
  std::ifstream in(path);
  const sim::Json file = sim::Json::parse(in);
  const std::vector<std::string> hardware = sim::preset_names(sim::PresetKind::hardware);
  for (const auto& [list, entries] : file.items()) {
    if (list == "description") continue;
    for (const auto& entry : entries) {
      const auto meant = entry.at(0).get<std::string>();
      CAPTURE(list, meant);
      for (std::size_t i = 1; i < entry.size(); ++i)
        CHECK(sim::meaning(list, entry[i].get<std::string>()) == meant);
      if (list == "device") CHECK(std::ranges::find(hardware, meant) != hardware.end());
      if (list == "dtype") CHECK(sim::from_name<sim::DType>(meant));
    }
  }
}

TEST_CASE("the names that publishers give to GPUs mean presets") {
  for (const auto& [text, preset] :
       std::vector<std::pair<std::string, std::string>>{{"A100-SXM4-80GB", "a100-sxm-80gb"},
                                                        {"A100-80GB-SXM", "a100-sxm-80gb"},
                                                        {"A100 (SXM, NVSwitch)", "a100-sxm-80gb"},
                                                        {"A100-SXM4-40GB", "a100-sxm-40gb"},
                                                        {"NVIDIA A100 40 GB", "a100-sxm-40gb"},
                                                        {"A100-PCIe", "a100-pcie-80gb"},
                                                        {"H100-80GB-SXM5", "h100-sxm"},
                                                        {"H100", "h100-sxm"},
                                                        {"H100-PCIe", "h100-pcie"},
                                                        {"H100 NVL 94GB", "h100-nvl"},
                                                        {"H200-141GB-SXM", "h200-sxm"},
                                                        {"H800-SXM5", "h800-sxm"},
                                                        {"HGX B200", "b200-sxm"},
                                                        {"GB200", "b200-sxm"},
                                                        {"GH200-SXM (900W, 141GiB)", "gh200"},
                                                        {"V100", "v100-sxm"}})
    CHECK(sim::hardware_preset_of(text) == preset);
  for (const std::string other : {"TPU v4", "Gaudi 2", ""})
    CHECK(sim::hardware_preset_of(other) == std::nullopt);
}
