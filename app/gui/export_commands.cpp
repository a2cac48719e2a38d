// What leaves the desktop: pictures, figures, tables, timelines, pages.
#include <imgui_internal.h>

#include "app/gui/file_dialogs.h"
#include "app/gui/shell.h"
#include "runtime/error.h"

namespace app::gui {
namespace {

// Where the user says; where no dialog is installed, the folder that the program was started in.
std::string file_for(const std::string& title, const std::string& name) {
  if (!has_file_dialogs()) return (std::filesystem::current_path() / name).string();
  std::string file = ask_file_to_save(title, name);
  const std::string ending = std::filesystem::path(name).extension().string();
  if (!file.empty() && std::filesystem::path(file).extension() != ending) file += ending;
  return file;
}

}  // namespace

const PanelEntry& Shell::exported_panel() const {
  const PanelEntry* panel = find_panel(view_.maximised);
  if (!panel) panel = find_panel(view_.used_last);
  return panel ? *panel : *gui::panels().front();
}

std::vector<PanelFigures> Shell::figures(std::string_view panel) {
  Look paper = look_;
  paper.colors = &palette(Theme::light);
  Requests none;
  const sim::Scenario& scenario =
      disagreement_.empty() ? document().scenario() : tabs_.current().legal->scenario;
  return panels_.figures(context(paper, none, scenario), panel);
}

std::string Shell::exported(std::string_view panel, ExportFormat format) {
  const Prediction* prediction = disagreement_.empty() ? prediction_.result() : &*tabs_.current().legal;
  return written(format, figures(panel), prediction ? prediction->report.get() : nullptr);
}

void Shell::export_to(const std::string& file, std::string_view panel, ExportFormat format) {
  if (file.empty()) return;  // the dialog was left
  write_text(file, exported(panel, format));
  hand_over(file);
  toast_.say("Written to " + file + ".");
}

void Shell::ask_picture(double scale) {
  const PanelEntry& panel = exported_panel();
  const std::string file = file_for("Save the picture", std::string(panel.id) + ".png");
  if (file.empty()) return;
  const ImGuiWindow* window = view_.maximised.empty() ? ImGui::FindWindowByName(window_name(panel).c_str())
                                                      : ImGui::FindWindowByName("##maximised");
  const ImVec2 size = window ? window->Size : ImGui::GetMainViewport()->Size;
  const auto points = [&](float pixels) { return static_cast<int>(pixels / look_.scale); };
  picture_.ask({executable_, panel.id, document().scenario(),
                runs_.of(document().scenario().workload.task).measured, points(size.x), points(size.y), scale,
                look_.theme, file});
  picture_awaited_ = true;
}

void Shell::tell_of_picture() {
  if (!picture_awaited_ || picture_.progress().running) return;
  picture_awaited_ = false;
  const std::string& failure = picture_.progress().failure;
  if (!failure.empty())
    toast_.say("The picture could not be drawn: " + failure);
  else if (picture_.result())
    toast_.say("Written to " + picture_.result()->string() + ".");
}

void Shell::add_export_commands() {
  const auto of_panel = [this] { return "of " + std::string(exported_panel().title); };
  const auto telling = [this](auto act) {
    return [this, act] {
      try {
        act();
      } catch (const std::exception& error) {
        toast_.say(error.what());
      }
    };
  };
  static constexpr std::array<int, 4> scales = {1, 2, 3, 4};
  for (const int scale : scales)
    commands_.add({.id = "export.png_" + std::to_string(scale) + "x",
                   .category = "Export",
                   .label = "Panel as PNG, " + std::to_string(scale) + "x",
                   .run = telling([this, scale] { ask_picture(scale); }),
                   .detail = of_panel});
  const auto add_file = [&](const char* id, const char* label, ExportFormat format, ImGuiKeyChord shortcut) {
    commands_.add({.id = id,
                   .category = "Export",
                   .label = label,
                   .run = telling([this, label, format] {
                     const PanelEntry& panel = exported_panel();
                     export_to(file_for(label, std::string(panel.id).append(ending_of(format))), panel.id,
                               format);
                   }),
                   .shortcut = shortcut,
                   .detail = of_panel});
  };
  add_file("export.svg", "Panel as SVG", ExportFormat::svg, ImGuiMod_Ctrl | ImGuiKey_E);
  add_file("export.csv", "Panel as CSV", ExportFormat::csv, ImGuiKey_None);
  const auto add_copy = [&](const char* id, const char* label, ExportFormat format, ImGuiKeyChord shortcut) {
    commands_.add({.id = id,
                   .category = "Export",
                   .label = label,
                   .run = telling([this, format] {
                     ImGui::SetClipboardText(exported(exported_panel().id, format).c_str());
                     toast_.say("The figures of " + std::string(exported_panel().title) +
                                " are on the clipboard.");
                   }),
                   .shortcut = shortcut,
                   .detail = of_panel});
  };
  add_copy("export.copy_tsv", "Copy tables for a spreadsheet", ExportFormat::tsv,
           ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiKey_C);
  add_copy("export.copy_markdown", "Copy tables as Markdown", ExportFormat::markdown,
           ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_M);
  const auto add_whole = [&](const char* id, const char* label, const char* name, std::string panel,
                             ExportFormat format, const char* detail) {
    commands_.add({.id = id,
                   .category = "Export",
                   .label = label,
                   .run = telling([this, label, name, panel, format] {
                     export_to(file_for(label, name), panel, format);
                   }),
                   .detail = [detail] { return std::string(detail); }});
  };
  add_whole("export.trace", "Timeline for Perfetto", "timeline.json", "pipeline", ExportFormat::trace,
            "the step's passes, stage by stage, as a Chrome trace");
  add_whole("export.html", "Scenario as HTML page", "report.html", "", ExportFormat::html,
            "plots, numbers, sources and the command, in one file");
}

}  // namespace app::gui
