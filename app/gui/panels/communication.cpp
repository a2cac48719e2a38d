// What a rank exchanges in a step, with whom, over which links, and what of it stands in the way.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "app/counted.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/step_view.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/plot.h"
#include "app/gui/widgets/text.h"
#include "app/gui/widgets/tile.h"
#include "sim/format.h"
#include "sim/report/step_parts.h"

namespace app::gui {
namespace {

// What is shown: one kind of message in one group.
struct CommunicationState {
  int stage = 0;             // whose traffic
  std::string group, kind;   // names; empty: those that take longest
  int rank = 0;              // whose group is coloured
  bool shows_curve = false;  // where there is room for the curve or the map alone
};
using Context = ContextWith<CommunicationState>;

// All messages of a kind in a group, of one stage.
struct Exchange {
  std::int32_t group = 0;
  sim::OpKind kind{};
  std::string group_name, kind_name;
  std::int64_t messages = 0;
  double bytes = 0, duration = 0, exposed = 0;
};

std::string kind_title(sim::OpKind kind) {
  std::string words(sim::name(kind));
  std::replace(words.begin(), words.end(), '_', '-');
  return kind == sim::OpKind::send ? "send and receive" : words;
}

// Longest first.
std::vector<Exchange> exchanges_of(const StepView& step, int stage) {
  std::vector<Exchange> exchanges;
  for (const sim::MessageTraffic& t : step.traffic) {
    if (t.stage != stage) continue;
    auto found = std::find_if(exchanges.begin(), exchanges.end(),
                              [&](const Exchange& e) { return e.group == t.group && e.kind == t.kind; });
    if (found == exchanges.end()) {
      std::string group(name(step.groups[static_cast<std::size_t>(t.group)].axis));
      std::replace(group.begin(), group.end(), '_', ' ');
      exchanges.push_back({t.group, t.kind, std::move(group), kind_title(t.kind), 0, 0, 0, 0});
      found = exchanges.end() - 1;
    }
    found->messages += t.messages;
    found->bytes += static_cast<double>(t.sent.value) * static_cast<double>(t.messages);
    found->duration += t.duration.value;
    found->exposed += t.exposed.value;
  }
  std::stable_sort(exchanges.begin(), exchanges.end(),
                   [](const Exchange& a, const Exchange& b) { return a.duration > b.duration; });
  return exchanges;
}

// Those of an exchange that are as large as each other, as far as their size is written: dispatched rows of
// experts carry a weight each, which rows on their way back do not.
struct SizedMessages {
  std::string size;  // "56.0 MiB"
  double sent = 0, duration = 0;
  std::int64_t messages = 0;
  double mean_size() const { return sent / static_cast<double>(std::max<std::int64_t>(1, messages)); }
  sim::Seconds mean_time() const {
    return {duration / static_cast<double>(std::max<std::int64_t>(1, messages))};
  }
};

std::vector<SizedMessages> sizes_of(const StepView& step, int stage, const Exchange& exchange) {
  std::vector<SizedMessages> sizes;
  for (const sim::MessageTraffic& t : step.traffic) {
    if (t.stage != stage || t.group != exchange.group || t.kind != exchange.kind) continue;
    const std::string size = sim::format(t.sent);
    auto found = std::ranges::find(sizes, size, &SizedMessages::size);
    if (found == sizes.end()) found = sizes.insert(found, {.size = size});
    found->messages += t.messages;
    found->sent += static_cast<double>(t.sent.value) * static_cast<double>(t.messages);
    found->duration += t.duration.value;
  }
  return sizes;
}

ImU32 group_color(const Palette& c, std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, sim::BufferClass>, 5> like = {{
      {"tensor", sim::BufferClass::parameter},
      {"context", sim::BufferClass::kv_cache},
      {"data", sim::BufferClass::optimizer},
      {"pipeline", sim::BufferClass::activation},
      {"expert", sim::BufferClass::gradient},
  }};
  for (const auto& [group, buffer_class] : like)
    if (name == group) return c.memory[static_cast<std::size_t>(buffer_class)];
  return c.memory[static_cast<std::size_t>(sim::BufferClass::scratch)];
}

std::string place_text(const sim::Group& group, const GroupPlace& place) {
  const std::string ranks = counted(group.size, "rank");
  return place.nodes == 1 ? ranks + " in a node" : ranks + " over " + counted(place.nodes, "node");
}

void draw_headline(const Context& context, const StepView& step, const std::vector<Exchange>& exchanges) {
  const Look& look = context.look;
  const Palette& c = look.color();
  double exposed = 0, hidden = 0;
  for (const Exchange& e : exchanges) {
    if (e.kind == sim::OpKind::send) continue;  // what stages wait for each other is the bubble's
    exposed += e.exposed;
    hidden += e.duration - e.exposed;
  }
  const float picker = step.stages > 1 ? look.px(110) : 0;
  const float begin = ImGui::GetCursorPosX(), room = ImGui::GetContentRegionAvail().x;
  ImGui::AlignTextToFramePadding();
  const float width = room - picker - look.px(8);
  const std::string words =
      "Exposed for " +
      sim::format_percent(sim::step_parts(*context.prediction.report).share(sim::StepPart::network)) +
      " of the step" + (step.stages > 1 ? "; on this stage " : ": ") + sim::format(sim::Seconds{exposed}) +
      " exposed, " + sim::format(sim::Seconds{hidden}) + " hidden";
  const std::string longer = words + " behind compute";
  text_fitted(look, TextRole::title, c.text,
              text_size_of(look, TextRole::title, longer).x <= width ? longer : words, width);
  if (step.stages < 2) return;
  ImGui::SameLine();
  CommunicationState& scope = context.state;
  ImGui::SetCursorPosX(begin + room - picker);
  if (begin_picker(look, "##choice", "stage " + std::to_string(scope.stage), picker)) {
    for (int stage = 0; stage < step.stages; ++stage)
      if (ImGui::Selectable(("stage " + std::to_string(stage)).c_str(), stage == scope.stage))
        scope.stage = stage;
    end_picker();
  }
}

// The exchange under the pointer, else the one that was picked.
const Exchange* draw_table(const Context& context, const StepView& step,
                           const std::vector<Exchange>& exchanges, float height) {
  const Look& look = context.look;
  const Palette& c = look.color();
  CommunicationState& scope = context.state;
  double longest = 0, largest = 0;
  for (const Exchange& e : exchanges) {
    longest = std::max(longest, e.duration);
    largest = std::max(largest, e.bytes);
  }
  const ScaleUnit time = time_unit(longest), bytes = byte_unit(largest);
  const bool wide = ImGui::GetContentRegionAvail().x >= look.px(960);
  const Exchange *picked = &exchanges.front(), *hovered = nullptr;
  constexpr ImGuiTableFlags flags =
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  if (!ImGui::BeginTable("exchanges", wide ? 9 : 6, flags, {0, height})) return picked;
  ImGui::TableSetupScrollFreeze(0, 1);
  // The name stays readable: messages, what is sent and the rate go first.
  constexpr float kLeastName = 170, kPadding = 10;
  const std::array<Droppable, 5> numbers = {{{look.px(74 + kPadding), 0},
                                             {look.px(84 + kPadding), 1},
                                             {look.px(72 + kPadding), 3},
                                             {look.px(84 + kPadding), 4},
                                             {look.px(84 + kPadding), 2}}};
  const std::vector<bool> fits =
      columns_beside(look.px(kLeastName), numbers, wide ? FLT_MAX : ImGui::GetContentRegionAvail().x);
  std::size_t number_column = 0;
  const auto column = [&](const char* id, float width) {
    const bool is_number = width > 0 && number_column < numbers.size();
    const bool shown = !is_number || fits[number_column++];
    ImGui::TableSetupColumn(
        id,
        (width > 0 ? ImGuiTableColumnFlags_WidthFixed : ImGuiTableColumnFlags_WidthStretch) |
            (shown ? 0 : ImGuiTableColumnFlags_Disabled),
        width > 0 ? look.px(width) : 1.0f);
  };
  column("group", 0);
  if (wide) column("where", 0);
  column("messages", 74);
  column("sent", 84);
  column("time", 72);
  if (wide) column("bar", 0);
  column("exposed", 84);
  column("rate", 84);
  if (wide) column("share", 60);
  std::vector<std::string> headings = {"group, operation"};
  if (wide) headings.emplace_back("where");
  headings.insert(headings.end(),
                  {"messages", std::string("sent, ") + bytes.name, std::string("time, ") + time.name});
  if (wide) headings.emplace_back("exposed, then hidden");
  headings.insert(headings.end(), {std::string("exposed, ") + time.name, "rate, GB/s"});
  if (wide) headings.emplace_back("of link");
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (std::size_t i = 0; i < headings.size(); ++i) {
    ImGui::TableNextColumn();
    const bool left = i == 0 || (wide && (i == 1 || headings[i].starts_with("exposed, then")));
    (left ? text : text_right)(look, TextRole::caption, c.dim, headings[i]);
  }
  for (const Exchange& e : exchanges) {
    const sim::Group& group = step.groups[static_cast<std::size_t>(e.group)];
    const GroupPlace place = place_of(group, context.prediction.scenario.hardware);
    const bool chosen = scope.group == e.group_name && scope.kind == e.kind_name;
    if (chosen) picked = &e;
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::PushID(&e);
    const ImVec2 at = ImGui::GetCursorPos();
    const float line = text_size_of(look, TextRole::body, "x").y;
    if (ImGui::Selectable("##row", chosen || (scope.group.empty() && &e == &exchanges.front()),
                          ImGuiSelectableFlags_SpanAllColumns, {0, line})) {
      scope.group = e.group_name;
      scope.kind = e.kind_name;
    }
    if (ImGui::IsItemHovered()) hovered = &e;
    ImGui::PopID();
    ImGui::SetCursorPos(at);
    const ImVec2 screen = ImGui::GetCursorScreenPos();
    const float swatch = std::floor(look.px(9));
    ImGui::GetWindowDrawList()->AddRectFilled({screen.x, screen.y + (line - swatch) / 2},
                                              {screen.x + swatch, screen.y + (line + swatch) / 2},
                                              group_color(c, name(group.axis)), look.px(2));
    ImGui::SetCursorPosX(at.x + swatch + look.px(7));
    text_fitted(look, TextRole::body, c.text, e.group_name + ", " + e.kind_name,
                ImGui::GetContentRegionAvail().x);
    if (wide) {
      ImGui::TableNextColumn();
      text_fitted(look, TextRole::body, c.dim, place_text(group, place), ImGui::GetContentRegionAvail().x);
    }
    const auto number = [&](ImU32 color, const std::string& words) {
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, color, words);
    };
    number(c.dim, sim::format_count(e.messages));
    number(c.dim, bytes.digits(e.bytes));
    number(c.predicted, time.digits(e.duration));
    if (wide) {
      ImGui::TableNextColumn();
      const ImVec2 begin = ImGui::GetCursorScreenPos();
      const float width = ImGui::GetContentRegionAvail().x, top = begin.y + line * 0.25f;
      ImDrawList* list = ImGui::GetWindowDrawList();
      const auto end = [&](double seconds) {
        return begin.x + width * static_cast<float>(seconds / longest);
      };
      list->AddRectFilled({begin.x, top}, {end(e.duration), top + line * 0.5f}, with_alpha(c.predicted, 0.3f),
                          look.px(2));
      list->AddRectFilled({begin.x, top}, {end(e.exposed), top + line * 0.5f}, c.predicted, look.px(2));
    }
    number(e.exposed > 0 ? c.predicted : c.mute, time.digits(e.exposed));
    const double rate = e.duration > 0 ? e.bytes / e.duration : 0;
    number(c.dim, ScaleUnit{1e9, "GB/s"}.digits(rate));
    if (wide) number(c.dim, place.link.value > 0 ? sim::format_percent(rate / place.link.value) : "");
  }
  ImGui::EndTable();
  return hovered ? hovered : picked;
}

int ranks_in_node(const StepView& step, const sim::Hardware& hardware) {
  return std::min(std::max(1, hardware.devices_per_node), step.ranks);
}
// Two lines of words stand below the map, with what is left free around them.
float room_of_ranks(const Look& look, float height) {
  return height - 2 * (text_size_of(look, TextRole::caption, "x").y + look.px(5));
}

// How nodes are laid out in a room: each a block of cells, a rank a cell, in so many columns.
struct RankMap {
  int columns = 1;           // of a node
  int across = 1, down = 1;  // nodes
  float cell = 0, gap = 0;

  float node_width() const { return cell * static_cast<float>(columns); }
  float width(int nodes) const {
    return static_cast<float>(std::min(nodes, across)) * (node_width() + gap) - gap;
  }
};

// The largest cells with which all nodes fit; where none do, the first nodes alone are drawn. A node of many
// is a column; of few it is as wide as that makes its cells larger.
RankMap rank_map(const Look& look, int nodes, int per_node, ImVec2 room) {
  constexpr float kLargest = 60, kLeast = 4;
  RankMap best;
  for (int columns = 1; columns <= per_node; columns *= 2) {
    if (per_node % columns != 0 || (columns > 1 && nodes > 8)) break;
    RankMap map{columns, 1, 1, look.px(kLargest), look.px(nodes > 8 ? 4 : 10)};
    while (true) {
      if (map.cell < look.px(8)) map.gap = look.px(2);
      const float height = map.cell * static_cast<float>(per_node / columns);
      map.across = std::max(1, static_cast<int>((room.x + map.gap) / (map.node_width() + map.gap)));
      map.down = std::max(1, static_cast<int>((room.y + map.gap) / (height + map.gap)));
      const bool fits = map.across * map.down >= nodes && height <= room.y && map.node_width() <= room.x;
      if (fits || map.cell <= look.px(kLeast)) break;
      map.cell = std::max(map.cell - 1, look.px(kLeast));
    }
    if (map.cell > best.cell) best = map;
  }
  return best;
}

// "the data group of rank 0: 8 ranks over 2 nodes, every 2nd rank, 4 side by side in each".
std::string words_of_group(const Exchange& exchange, const sim::Group& group, const GroupPlace& place,
                           int rank) {
  std::string words = "the " + exchange.group_name + " group of rank " + sim::format_count(rank) + ": " +
                      place_text(group, place);
  if (group.stride > 1) words += ", every " + ordinal(group.stride) + " rank";
  if (place.nodes > 1)
    words += ", " + sim::format_count(place.ranks_per_node) +
             (place.ranks_per_node == 1 ? " in each" : " side by side in each");
  return words;
}

// Nodes as blocks of ranks; those of one group in its colour.
void draw_ranks(const Context& context, const StepView& step, const Exchange& exchange, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  CommunicationState& scope = context.state;
  scope.rank = std::clamp(scope.rank, 0, step.ranks - 1);
  const sim::Group& group = step.groups[static_cast<std::size_t>(exchange.group)];
  const sim::Hardware& hardware = context.prediction.scenario.hardware;
  const int per_node = ranks_in_node(step, hardware);
  const int nodes = (step.ranks + per_node - 1) / per_node;
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float line = text_size_of(look, TextRole::caption, "x").y;
  const auto [columns, across, down, cell, gap] =
      rank_map(look, nodes, per_node, {size.x, room_of_ranks(look, size.y)});
  const int shown = std::min(nodes, across * down);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImU32 color = group_color(c, name(group.axis));
  const int mine = first_of_group(group, scope.rank);
  const ImVec2 mouse = ImGui::GetMousePos();
  int hovered = -1;
  const float inset = cell >= look.px(9) ? look.px(1) : 0.5f;
  for (int node = 0; node < shown; ++node)
    for (int local = 0; local < per_node; ++local) {
      const int rank = node * per_node + local;
      if (rank >= step.ranks) break;
      const ImVec2 least = {
          begin.x + (cell * static_cast<float>(columns) + gap) * static_cast<float>(node % across) +
              cell * static_cast<float>(local % columns),
          begin.y +
              (cell * static_cast<float>(per_node / columns) + gap) * static_cast<float>(node / across) +
              cell * static_cast<float>(local / columns)};
      const int first = first_of_group(group, rank);
      // Groups beside each other in two shades, so that one sees where each ends.
      const int number = rank / (group.stride * group.size) * group.stride + rank % group.stride;
      const float shade = number % 2 == 0 ? 0.2f : 0.34f;
      list->AddRectFilled(
          {least.x + inset, least.y + inset}, {least.x + cell - inset, least.y + cell - inset},
          first == mine ? color : mix(c.panel, color, shade), cell >= look.px(9) ? look.px(2) : 0);
      if (cell >= look.px(20) && step.ranks <= 1000)
        draw_text(list, look, TextRole::number, {least.x + cell / 2, least.y + cell / 2},
                  first == mine ? text_on(color) : c.dim, std::to_string(rank), {0.5f, 0.5f});
      if (mouse.x >= least.x && mouse.x < least.x + cell && mouse.y >= least.y && mouse.y < least.y + cell)
        hovered = rank;
    }
  if (hovered >= 0 && ImGui::IsWindowHovered()) {
    scope.rank = hovered;
    ImGui::SetTooltip("rank %d, node %d", hovered, hovered / per_node);
  }
  const float rows = std::ceil(static_cast<float>(shown) / static_cast<float>(across));
  float y = begin.y + rows * (cell * static_cast<float>(per_node / columns) + gap) - gap + look.px(6);
  const auto say = [&](ImU32 words_color, const std::string& words) {
    draw_text(list, look, TextRole::caption, {begin.x, y}, words_color,
              fitted(look, TextRole::caption, words, size.x));
    y += line + look.px(3);
  };
  say(c.text, words_of_group(exchange, group, place_of(group, hardware), scope.rank));
  const std::string ranks = counted(per_node, "rank");
  say(c.mute, nodes == 1
                  ? "one node of " + ranks
                  : (shown < nodes ? "the first " + sim::format_count(shown) + " of "
                                   : std::string(columns > 1 ? "a block" : "a column") + " is a node; all ") +
                        counted(nodes, "node") + " of " + ranks);
  ImGui::Dummy(size);
}

// The width of the map and the words below it.
float width_of_ranks(const Context& context, const StepView& step, const Exchange& exchange, ImVec2 most) {
  const Look& look = context.look;
  const sim::Hardware& hardware = context.prediction.scenario.hardware;
  const int per_node = ranks_in_node(step, hardware);
  const int nodes = (step.ranks + per_node - 1) / per_node;
  const sim::Group& group = step.groups[static_cast<std::size_t>(exchange.group)];
  const std::string words = words_of_group(exchange, group, place_of(group, hardware), context.state.rank);
  return std::max(rank_map(look, nodes, per_node, {most.x, room_of_ranks(look, most.y)}).width(nodes),
                  text_size_of(look, TextRole::caption, words).x + 1);
}

// "1 KiB" at powers of 32.
void message_axis(double low, double high) {
  std::vector<double> at;
  std::vector<std::string> labels;
  for (double bytes = 1024; bytes <= high * 1.001; bytes *= 32)
    if (bytes >= low * 0.999) {
      at.push_back(bytes);
      labels.push_back(sim::format(sim::Bytes{std::llround(bytes)}));
    }
  std::vector<const char*> text_of;
  for (const std::string& label : labels) text_of.push_back(label.c_str());
  ImPlot::SetupAxisTicks(ImAxis_X1, at.data(), static_cast<int>(at.size()), text_of.data());
}

int write_time(double value, char* buffer, int size, void*) {
  return std::snprintf(buffer, static_cast<std::size_t>(size), "%s",
                       sim::format(sim::Seconds{value}).c_str());
}

void draw_curve(const Context& context, const StepView& step, const Exchange& exchange, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const auto curve = std::find_if(step.curves.begin(), step.curves.end(), [&](const MessageCurve& one) {
    return one.group == exchange.group && one.kind == exchange.kind;
  });
  if (curve == step.curves.end() || curve->points.empty()) return;
  const GroupPlace place =
      place_of(step.groups[static_cast<std::size_t>(exchange.group)], context.prediction.scenario.hardware);
  const TextScope axes(look, TextRole::caption);
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorAlpha, 0.0f);
  if (!ImPlot::BeginPlot("##curve", size, ImPlotFlags_CanvasOnly | ImPlotFlags_NoFrame))
    return ImPlot::PopStyleVar();
  const auto& points = curve->points;
  const auto low = static_cast<double>(points.front().sent.value),
             high = static_cast<double>(points.back().sent.value);
  constexpr float kRoomForTitle = 260;  // points: what stands upright beside the axis is cut below it
  ImPlot::SetupAxes("sent by a rank in a message",
                    size.y >= look.px(kRoomForTitle) ? "time of a message" : nullptr,
                    ImPlotAxisFlags_NoHighlight, ImPlotAxisFlags_NoHighlight);
  ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  message_axis(low, high);
  ImPlot::SetupAxisFormat(ImAxis_Y1, write_time, nullptr);
  ImPlot::SetupAxesLimits(low, high, points.front().low.value / 2, points.back().high.value * 1.5,
                          ImPlotCond_Always);
  std::vector<double> bytes_of, lowest, highest;
  for (const MessageCurve::Point& point : points) {
    bytes_of.push_back(static_cast<double>(point.sent.value));
    lowest.push_back(point.low.value);
    highest.push_back(point.high.value);
  }
  ImPlotSpec band;
  band.FillColor = ImGui::ColorConvertU32ToFloat4(c.predicted);
  band.FillAlpha = 0.32f;
  band.LineWeight = 0;
  ImPlot::PlotShaded("band", bytes_of.data(), lowest.data(), highest.data(), static_cast<int>(points.size()),
                     band);
  ImPlot::PushPlotClipRect();
  ImDrawList* list = ImPlot::GetPlotDrawList();
  const auto at = [](double bytes, sim::Seconds t) { return ImPlot::PlotToPixels(bytes, t.value); };
  std::vector<ImVec2> line;
  for (const MessageCurve::Point& point : points)
    line.push_back(at(static_cast<double>(point.sent.value), point.seconds));
  const ImVec2 least = ImPlot::GetPlotPos();
  const ImVec2 most = {least.x + ImPlot::GetPlotSize().x, least.y + ImPlot::GetPlotSize().y};
  LabelPlacer labels({least.x + look.px(3), least.y + look.px(2)},
                     {most.x - look.px(3), most.y - look.px(2)});
  dashed_line(list, look, line, c.predicted, look.px(1.6f));
  for (std::size_t i = 1; i < line.size(); ++i) labels.block_line(line[i - 1], line[i], look.px(2));
  if (place.link.value > 0) {
    const auto ideal = [&](double bytes) { return at(bytes, {bytes / place.link.value}); };
    list->AddLine(ideal(low), ideal(high), c.ceiling, look.px(1.5f));
    labels.block_line(ideal(low), ideal(high), look.px(2));
  }

  // The scenario's own messages: area is the time of all of one size.
  const double whole = std::max(exchange.duration, 1e-12);
  for (const SizedMessages& t : sizes_of(step, context.state.stage, exchange)) {
    const ImVec2 centre = at(std::max(low, t.mean_size()), t.mean_time());
    const float radius =
        std::max(look.px(3), look.px(13) * static_cast<float>(std::sqrt(t.duration / whole)));
    list->AddCircleFilled(centre, radius, with_alpha(c.predicted, 0.35f));
    list->AddCircle(centre, radius, c.predicted, 0, look.px(1.4f));
    labels.block({centre.x - radius, centre.y - radius}, {centre.x + radius, centre.y + radius});
    const std::string words = counted(t.messages, "message") + " of " + t.size;
    ImVec2 position;
    if (labels.place(centre, radius + look.px(4), text_size_of(look, TextRole::caption, words), position))
      draw_text(list, look, TextRole::caption, position, c.text, words);
  }
  if (place.link.value > 0) {
    const std::string words = "the link's " + sim::format(place.link);
    const ImVec2 extent = text_size_of(look, TextRole::caption, words);
    std::vector<ImVec2> corners;
    for (const double share : {0.75, 0.6, 0.85, 0.45}) {
      const ImVec2 on =
          at(low * std::pow(high / low, share), {low * std::pow(high / low, share) / place.link.value});
      corners.push_back({on.x + look.px(8), on.y + look.px(3)});
      corners.push_back({on.x - extent.x - look.px(8), on.y - extent.y - look.px(3)});
    }
    ImVec2 position;
    if (labels.place_at(corners, extent, position))
      draw_text(list, look, TextRole::caption, position, c.dim, words);
  }
  ImPlot::PopPlotClipRect();
  if (ImPlot::IsPlotHovered()) {
    const double bytes = ImPlot::GetPlotMousePos().x;
    const auto nearest = std::min_element(points.begin(), points.end(), [&](const auto& a, const auto& b) {
      const auto far = [&](const auto& p) {
        return std::abs(std::log(static_cast<double>(p.sent.value) / bytes));
      };
      return far(a) < far(b);
    });
    ImGui::BeginTooltip();
    text(look, TextRole::title, c.text, sim::format(nearest->sent) + " sent by a rank");
    text(look, TextRole::number, c.predicted,
         sim::format(nearest->seconds) + ", 90 % in " + sim::format(nearest->low) + " to " +
             sim::format(nearest->high));
    text(look, TextRole::number, c.dim, sim::format(nearest->sent / nearest->seconds));
    ImGui::EndTooltip();
  }
  ImPlot::EndPlot();
  ImPlot::PopStyleVar();
}

std::string caption(const PanelContext& context) {
  const auto& step = context.prediction.step;
  if (context.scenario.workload.task != sim::Task::train || !step) return "";
  return "of one rank of " + sim::format_count(step->ranks) + ", a step";
}

void draw(const Context& context) {
  if (context.scenario.workload.task != sim::Task::train)
    return draw_empty_state(context, "Training steps alone",
                            "What ranks exchange is shown of training steps: choose Train above.");
  if (draw_missing_prediction(context)) return;
  const auto step = context.prediction.step;
  if (!step) return draw_empty_state(context, "Predicting", "The step's messages are on their way.");
  CommunicationState& scope = context.state;
  scope.stage = std::clamp(scope.stage, 0, step->stages - 1);
  const std::vector<Exchange> exchanges = exchanges_of(*step, scope.stage);
  if (exchanges.empty())
    return draw_empty_state(
        context, "Nothing to exchange",
        "One device works alone. Divide the work under Strategy (data, tensor, context, pipeline, expert "
        "parallel) to see what the ranks send each other.");
  const Look& look = context.look;
  draw_headline(context, *step, exchanges);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float line =
      text_size_of(look, TextRole::body, "x").y + 2 * ImGui::GetStyle().CellPadding.y + look.px(2);
  const float wanted = line * static_cast<float>(exchanges.size() + 1) + look.px(8);
  const Exchange* shown = draw_table(context, *step, exchanges, std::min(wanted, room.y * 0.5f));
  ImGui::Dummy({0, look.px(2)});
  const ImVec2 rest = ImGui::GetContentRegionAvail();
  const float gap = look.px(16);
  if (rest.x >= look.px(640)) {
    // The curve has what the map and the words below it leave.
    const float half = std::floor((rest.x - gap) / 2);
    const float width = std::min(half, width_of_ranks(context, *step, *shown, {half, rest.y}));
    if (ImGui::BeginChild("ranks", {width, rest.y})) draw_ranks(context, *step, *shown, {width, rest.y});
    ImGui::EndChild();
    ImGui::SameLine(0, gap);
    draw_curve(context, *step, *shown, {rest.x - width - gap, rest.y});
    return;
  }
  static constexpr std::array<std::string_view, 2> tabs = {"ranks", "time by size"};
  if (const auto tab = segmented(look, "tab", scope.shows_curve ? 1 : 0, tabs)) scope.shows_curve = *tab == 1;
  const ImVec2 left = ImGui::GetContentRegionAvail();
  if (scope.shows_curve)
    draw_curve(context, *step, *shown, left);
  else
    draw_ranks(context, *step, *shown, left);
}

std::vector<Figure> figures(const Context& context) {
  if (!context.prediction.step) return {};
  const StepView& step = *context.prediction.step;
  FigureTable table{{{"stage"},
                     {"group"},
                     {"operation"},
                     {"ranks", Measure::count},
                     {"messages", Measure::count},
                     {"sent", Measure::bytes},
                     {"time", Measure::seconds},
                     {"exposed", Measure::seconds},
                     {"rate", Measure::bytes_per_second}},
                    {}};
  for (int stage = 0; stage < step.stages; ++stage)
    for (const Exchange& e : exchanges_of(step, stage))
      table.rows.push_back({std::to_string(stage), e.group_name, e.kind_name,
                            static_cast<double>(step.groups[static_cast<std::size_t>(e.group)].size),
                            static_cast<double>(e.messages), e.bytes, e.duration, e.exposed,
                            e.duration > 0 ? Cell(e.bytes / e.duration) : Cell()});
  if (table.rows.empty()) return {};
  std::vector<Figure> all = {{"Exchanges of a step", std::move(table)}};
  FigurePlot plot{
      {"sent by a rank", Measure::bytes, true}, {"time of a message", Measure::seconds, true}, {}};
  for (const MessageCurve& curve : step.curves) {
    const sim::Group& group = step.groups[static_cast<std::size_t>(curve.group)];
    FigureCurve line{std::string(name(group.axis)) + ", " + kind_title(curve.kind),
                     group_color(context.look.color(), name(group.axis)),
                     Mark::line,
                     {}};
    for (const MessageCurve::Point& p : curve.points)
      if (p.sent.value > 0 && p.seconds.value > 0)
        line.points.push_back({static_cast<double>(p.sent.value), p.seconds.value});
    if (!line.points.empty()) plot.curves.push_back(std::move(line));
  }
  if (!plot.curves.empty()) all.push_back({"Time against size", std::move(plot)});
  return all;
}

}  // namespace

extern const PanelEntry communication_panel = {
    "communication", "Communication", "what ranks exchange, and what of it stands in the way",
    Dock::upper_right, panel_of<CommunicationState, caption, draw, figures>};

}  // namespace app::gui
