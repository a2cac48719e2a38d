// A table of measurements: its cells, and the predictions of its rows.
// Read by: sim/csv.cpp sim/validate/table_words.cpp sim/validate/row_reader.cpp
#include <algorithm>

#include "sim/csv.h"
#include "sim/validate/table_validation.h"
#include "tests/fuzz/fuzz.h"

namespace {

// As many columns as a file of 256 KB can name: 50,000 of four letters.
std::string many_columns() {
  std::string header;
  for (int column = 0; column < 50'000; ++column) {
    if (column > 0) header += ',';
    for (int rest = column, letter = 0; letter < 4; ++letter, rest /= 26)
      header += static_cast<char>('a' + rest % 26);
  }
  return header + "\n";
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = files_of("presets/published", ".csv");
  for (std::string& table : all) {  // a row of each, so that a change hits it
    std::size_t end = 0;
    for (int line = 0; line < 2 && end != std::string::npos; ++line) end = table.find('\n', end + 1);
    table = table.substr(0, end) + "\n";
  }
  all.push_back(
      "id,source,model_name,gpu,num_gpus,tp,pp,dp,seq_len,micro_batch,global_batch,framework,precision,step_"
      "time_s\n"
      "1,a,Llama 3 8B,H100-80GB-SXM,8,1,1,8,8192,1,64,torchtitan,bf16,1.5\n"
      "2,\"b, \"\"c\"\"\",GPT 22B,A100-80GB-SXM,8,8,1,1,2048,4,4,Megatron-LM,fp16,1.4\n");
  all.push_back("gpu,framework,dtype,m,n,k,latency_ms\nH100-80GB-SXM,cuBLAS,bf16,4096,4096,1024,0.1\n");
  all.push_back("collective,gpu,num_gpus,message_bytes,latency_us\nall_reduce,H100-80GB-SXM,8,1048576,60\n");
  all.push_back(many_columns());
  return all;
}

void fuzz::read(std::string_view input) {
  const sim::CsvTable table = sim::csv_from_text(input, kFile);
  for (const auto& row : table.rows)
    require(row.size() == table.header.size(), "rows are as long as the header");
  const std::string written = sim::to_text(table);
  constexpr const char* kLaw = "a table is written as it is read";
  const sim::CsvTable again = require_accepted([&] { return sim::csv_from_text(written, kFile); }, kLaw);
  require_same(sim::to_text(again), written, kLaw);
  // A run of thousands of devices or sequences takes seconds to predict under sanitizers, and it is reading
  // that is tried.
  constexpr std::size_t kMostRows = 2, kMostDigits = 3;
  sim::CsvTable few = table;
  const auto batch = std::ranges::find(table.header, "global_batch");
  if (batch != table.header.end())
    std::erase_if(few.rows, [column = batch - table.header.begin()](const std::vector<std::string>& row) {
      return row[static_cast<std::size_t>(column)].size() > kMostDigits;
    });
  if (few.rows.size() > kMostRows) few.rows.resize(kMostRows);
  const sim::Validation validation = sim::validate_table(few);
  require(validation.rows.size() == few.rows.size(), "every row has a prediction or a reason");
  for (std::size_t row = 0; row < few.rows.size(); ++row) {
    require(!validation.rows[row].predictions.empty() || !validation.rows[row].why_not.empty(),
            "every row has a prediction or a reason");
    sim::compare_row(few, row, validation);
  }
  sim::to_text(sim::with_predictions(few, validation));
  sim::summarize(few, validation);
}
