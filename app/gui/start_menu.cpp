#include "app/gui/start_menu.h"

#include <imgui.h>

#include <algorithm>

#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"

namespace app::gui {
namespace {

void draw_device(const PanelContext& context, const runtime::MachineDevice& device) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const RunPlace& now = context.runs.choices.place;
  ImGui::PushID(device.flag.c_str());
  const bool chosen = now.device == device.flag;
  text(look, TextRole::body, device.missing.empty() ? (chosen ? c.text : c.dim) : c.mute, device.name);
  if (!device.missing.empty()) {
    text_wrapped(look, TextRole::caption, c.dim, device.missing);
  } else {
    std::vector<std::string_view> types;
    for (const sim::DType dtype : device.dtypes) types.push_back(sim::name(dtype));
    const std::size_t current =
        chosen ? static_cast<std::size_t>(std::find(device.dtypes.begin(), device.dtypes.end(), now.dtype) -
                                          device.dtypes.begin())
               : types.size();
    if (const auto picked = segmented(look, "types", current, types)) {
      context.invoke(place_command(device.flag, device.dtypes[*picked]));
      ImGui::CloseCurrentPopup();
    }
  }
  ImGui::PopID();
  ImGui::Dummy({0, look.px(3)});
}

void draw_places(const PanelContext& context) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const float width = look.px(340);
  ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width);
  ImGui::Dummy({width, look.px(1)});
  form_heading(look, "Run on");
  for (const runtime::MachineDevice& device : context.places.devices) draw_device(context, device);
  if (!context.looking_for_places.failure.empty())
    text_wrapped(look, TextRole::caption, c.bad, context.looking_for_places.failure);
  ImGui::BeginDisabled(context.looking_for_places.running);
  if (ImGui::Button("Look again")) context.invoke("run.look_for_devices");
  ImGui::EndDisabled();
  form_heading(look, "Play a recording");
  const auto& recordings = context.places.recordings;
  for (std::size_t i = 0; i < recordings.size(); ++i)
    if (ImGui::Selectable((title_of(recordings[i]) + "##" + std::to_string(i)).c_str()))
      context.invoke("run.play." + std::to_string(i));
  if (recordings.empty())
    text_wrapped(look, TextRole::caption, c.dim,
                 "None yet. ridgepoint train --record FILE.ndjson makes one; once opened it stands here.");
  ImGui::PopTextWrapPos();
}

}  // namespace

std::string place_command(const std::string& device, sim::DType dtype) {
  return "run.on." + device + "." + std::string(sim::name(dtype));
}

std::string place_text(const RunPlace& place) {
  return place.name + ", " + std::string(sim::name(place.dtype));
}

std::string short_place_text(const RunPlace& place) {
  const std::size_t colon = place.device.find(':');
  const std::string device = !place.is_gpu()              ? "CPU"
                             : colon == std::string::npos ? "GPU"
                                                          : "GPU " + place.device.substr(colon + 1);
  return device + ", " + std::string(sim::name(place.dtype));
}

RunPlace place_on(const runtime::MachineDevice& device, sim::DType dtype) {
  return {device.flag, dtype, device.name};
}

void draw_place_picker(const PanelContext& context, float greatest_width) {
  if (!begin_picker(context.look, "places", short_place_text(context.runs.choices.place), greatest_width))
    return;
  draw_places(context);
  end_picker();
}

void draw_place_arrow(const PanelContext& context, float width) {
  if (!begin_picker(context.look, "place_arrow", "", width)) return;
  draw_places(context);
  end_picker();
}

}  // namespace app::gui
