// Tables of measurements, predicted beside the window.
#include <filesystem>
#include <fstream>

#include "app/gui/panels/validation.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

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
