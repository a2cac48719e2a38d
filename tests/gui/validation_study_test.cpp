// Tables of measurements, predicted beside the window.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/gui/panels/validation.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace app::gui;

namespace {

class TableFile {
 public:
  TableFile(const std::string& name, const std::string& text)
      : path_(std::filesystem::temp_directory_path() / name) {
    std::ofstream(path_) << text;
  }
  ~TableFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Two rows that can be predicted, one whose device nobody calibrated.
constexpr const char* kCollectives =
    "source,gpu,collective,num_gpus,message_bytes,time_us,library\n"
    "a,H100-80GB-SXM,all_reduce,8,1048576,60,NCCL\n"
    "b,H100-80GB-SXM,all_gather,8,67108864,400,NCCL\n"
    "b,Abacus,all_gather,8,67108864,400,NCCL\n";

}  // namespace

TEST_CASE("a table's points are its rows that were measured and predicted, by source and GPU") {
  const TableFile file("ridgepoint_collectives.csv", kCollectives);
  std::size_t told = 0;
  const ValidatedTable table = validate_file(file.path(), [&](std::size_t done, std::size_t of) {
    told = done;
    return of == 3;
  });
  CHECK(table.failure.empty());
  CHECK(told == 2);
  CHECK(table.sources == std::vector<std::string>{"a", "b"});
  CHECK(table.gpus == std::vector<std::string>{"h100-sxm", "Abacus"});
  REQUIRE(table.columns.size() == 1);
  CHECK(table.columns[0].name == "time_us");
  REQUIRE(table.columns[0].points.size() == 2);
  const ValidationPoint& point = table.columns[0].points[1];
  CHECK(point.row == 1);
  CHECK(point.measured == 400);
  CHECK(point.low < point.predicted);
  CHECK(point.predicted < point.high);
  CHECK(table.summaries.front().rows == 3);
  CHECK(table.summaries.front().predicted == 2);
  CHECK_FALSE(table.validation.rows[2].why_not.empty());
}

TEST_CASE("what is predicted too low is below zero, a rate as well as a time, and never below -100 %") {
  const TableFile file("ridgepoint_signs.csv",
                       "source,gpu,collective,num_gpus,message_bytes,time_us,busbw_gbps,library\n"
                       "a,H100-80GB-SXM,all_reduce,8,1048576,1000000,1000000,NCCL\n"
                       "a,H100-80GB-SXM,all_reduce,8,1048576,0.001,0.001,NCCL\n");
  const ValidatedTable table = validate_file(file.path(), [](std::size_t, std::size_t) { return true; });
  CHECK(table.failure.empty());
  REQUIRE(table.columns.size() == 2);
  for (const ValidatedColumn& column : table.columns) {
    INFO(column.name);
    REQUIRE(column.points.size() == 2);
    CHECK(column.points[0].error < 0);
    CHECK(column.points[0].error > -1);
    CHECK(column.points[1].error > 0);
  }
}

TEST_CASE("a validation that is stopped leaves the rest without predictions") {
  const TableFile file("ridgepoint_stopped.csv", kCollectives);
  const ValidatedTable table =
      validate_file(file.path(), [](std::size_t done, std::size_t) { return done < 1; });
  REQUIRE(table.columns.size() == 1);
  CHECK(table.columns[0].points.size() == 1);
}

TEST_CASE("a file that is no table says why, and keeps none of the others from being shown") {
  const TableFile good("ridgepoint_good.csv", kCollectives), other("ridgepoint_other.csv", "a,b\n1,2\n");
  ValidationStudies studies;
  ValidationStudy study(
      [&](const OpenedFiles& files, const auto& course) { return studies.study(files, course); }, [] {});
  OpenedFiles files = {"/nowhere/at_all.csv", other.path(), good.path()};
  study.ask(files);
  study.wait();
  study.poll();
  const ValidationView& view = *study.result();
  REQUIRE(view.tables.size() == 3);
  CHECK_FALSE(study.progress().running);
  CHECK(view.tables[0]->failure.find("at_all.csv") != std::string::npos);
  CHECK(view.tables[1]->failure.find("columns") != std::string::npos);
  CHECK(view.tables[2]->failure.empty());
  const std::shared_ptr<const ValidatedTable> first = view.tables[2], unread = view.tables[1];
  files.push_back(good.path());
  study.ask(files);
  study.wait();
  study.poll();
  REQUIRE(study.result()->tables.size() == 3);
  CHECK(study.result()->tables[2] != first);  // read again
  CHECK(study.result()->tables[1] == unread);
}

TEST_CASE("the validation panel opens a table, shows a row that is picked, and says what to do without one") {
  tests::NullDesktop desktop;
  auto& shell = desktop.shell();
  shell.commands().invoke("maximise.validation");
  desktop.frames(3);
  shell.wait_for_studies();
  const TableFile file("ridgepoint_panel.csv", kCollectives);
  desktop.state<ValidationState>().path = file.path().string();
  REQUIRE(shell.commands().invoke("validation.open"));
  shell.wait_for_studies();
  for (const ImVec2 size : {ImVec2(1600, 1000), ImVec2(600, 400)})
    for (int tab = 0; tab < 3; ++tab)
      for (const int row : {-1, 0, 2}) {
        ImGui::GetIO().DisplaySize = size;
        desktop.state<ValidationState>().tab = tab;
        if (row >= 0) desktop.state<ValidationState>().row = static_cast<std::size_t>(row);
        desktop.frames(3);
        CHECK(GImGui->ErrorCountCurrentFrame == 0);
      }
}

TEST_CASE("the validation panel measures here, and shows the table of what ran") {
  tests::NullDesktop desktop;
  auto& shell = desktop.shell();
  shell.commands().invoke("maximise.validation");
  desktop.frames(3);
  shell.wait_for_studies();
  const TemporaryFolder folder;
  // In place of this program: two runs, one operation of the first, and one that was refused.
  const std::filesystem::path program = folder.write("measures", R"(#!/bin/sh
echo "what,series,at,operation,time_s,predicted_time_s,predicted_time_s_low,predicted_time_s_high,why_not"
echo "training steps,GPT,96,,0.10,0.11,0.09,0.13,"
echo "operations,GPT,96,forward matmul,0.01,0.02,0.015,0.03,"
echo "tokens,Llama,24,,0.20,0.19,0.15,0.25,"
echo "training steps,GPT,7,,,,,,no reason"
)");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  auto& state = desktop.state<ValidationState>();
  state.executable = program.string();
  state.own_file = folder.path() / "kept" / "this machine.csv";
  REQUIRE(shell.commands().invoke("validation.measure"));
  shell.wait_for_studies();
  desktop.frames(3);
  shell.wait_for_studies();
  desktop.frames(3);
  REQUIRE(state.own.result());
  CHECK(state.own.result()->runs == 3);
  CHECK(std::filesystem::exists(state.own_file));
  CHECK(state.table == "this machine.csv");
  const auto& tables = state.study.result()->tables;
  const auto own = std::find_if(tables.begin(), tables.end(),
                                [](const auto& table) { return table->name == "this machine.csv"; });
  REQUIRE(own != tables.end());
  CHECK((*own)->failure == "");
  REQUIRE((*own)->columns.size() == 1);
  CHECK((*own)->columns.front().points.size() == 3);
  CHECK((*own)->summaries.front().rows == 4);
  CHECK((*own)->summaries.front().compared == 3);
  // Nothing that could measure: a sentence, and the table stays.
  state.executable = (folder.path() / "missing").string();
  REQUIRE(shell.commands().invoke("validation.measure"));
  shell.wait_for_studies();
  desktop.frames(3);
  CHECK(state.own.progress().failure != "");
  CHECK(GImGui->ErrorCountCurrentFrame == 0);
}
