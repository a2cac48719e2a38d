#include "app/gui/panels/lessons_film.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"

namespace app::gui {
namespace {

using lesson::Film;
using lesson::FilmKind;

constexpr double kSeconds = 10;             // that a film is played in, whatever it takes on the machine
constexpr float kOfScreen = 0.28f;          // no higher: its button and its sentence stand below
constexpr float kOfScreenNamed = 0.4f;      // but for rows with words in them, each as high as these
constexpr double kWorthAName = .005;        // share of the peak that a part is named from
constexpr float kStillToCome = 0.22f;       // how strong is what lies after the moment
constexpr int kModel = lesson::kProposals;  // whose a token is that nobody proposed
constexpr float kRow = 24, kLeastRow = 5, kMostRows = 300, kCurve = 190, kRing = 270, kBlocks = 190;

// As many hues as there are micro-batches, shards or sequences; backward passes are darker.
ImU32 color_of(const Palette& c, int of, int holders, bool back) {
  if (of < 0) return c.memory[static_cast<std::size_t>(sim::BufferClass::optimizer)];
  const float hue = 0.58f + 0.8f * static_cast<float>(of) / static_cast<float>(std::max(holders, 1));
  ImVec4 color = {0, 0, 0, 1};
  ImGui::ColorConvertHSVtoRGB(hue - std::floor(hue), 0.52f, 0.86f, color.x, color.y, color.z);
  const ImU32 bright = ImGui::ColorConvertFloat4ToU32(color);
  return back ? mix(bright, c.panel, 0.45f) : bright;
}

float height_of(const Film& film) {
  const auto rows = static_cast<float>(film.rows.size());
  switch (film.kind) {
    case FilmKind::memory:
      return kCurve + kRow + 8;
    case FilmKind::pipeline:
      return std::min(kMostRows, rows * kRow);
    case FilmKind::ring:
      return kRing;
    case FilmKind::cache:
      return kBlocks;
    case FilmKind::experts:
    case FilmKind::tiles:
      return kRing;
    case FilmKind::draft:
      return 4 * kRow + 28;
  }
  return kCurve;
}

float height_on_screen(const Look& look, const Film& film) {
  const float screen = ImGui::GetMainViewport()->Size.y;
  const bool named = film.kind == FilmKind::experts || film.kind == FilmKind::pipeline;
  const float rows =
      named ? static_cast<float>(film.rows.size()) * text_size_of(look, TextRole::caption, "x").y : 0;
  return std::min(look.px(height_of(film)),
                  std::max(kOfScreen * screen, std::min(kOfScreenNamed * screen, rows)));
}

struct Canvas {
  ImDrawList* list;
  const Look& look;
  const Film& film;
  double now;  // seconds
  ImVec2 least, most;

  const Palette& c() const { return look.color(); }
  float x(double time, float left, float right) const {
    return left + (right - left) * static_cast<float>(film.end > 0 ? time / film.end : 0);
  }

  // Rows of passes: what has been is bright, what runs has a border, what comes is faint.
  void rows(float left, float right, float top, float bottom, bool names) const {
    const float height = (bottom - top) / static_cast<float>(film.rows.size());
    const float inset = height > look.px(kLeastRow) ? look.px(1) : 0;
    for (const Film::Span& span : film.spans) {
      const ImVec2 from = {x(span.start, left, right), top + height * static_cast<float>(span.row) + inset};
      const ImVec2 to = {std::max(from.x + 1, x(span.end, left, right) - look.px(1)),
                         from.y + height - 2 * inset};
      const ImU32 color = color_of(c(), span.of, film.holders, span.back);
      const bool runs = span.start <= now && now < span.end;
      const bool begun = span.end <= now || runs;
      list->AddRectFilled(from, to, begun ? color : with_alpha(color, kStillToCome), look.px(2));
      if (runs) list->AddRect(from, to, c().text, look.px(2), 0, look.px(1.5f));
      const std::string number = span.of >= 0 ? std::to_string(span.of) : "";
      if (names && to.x - from.x > text_size_of(look, TextRole::caption, number).x + look.px(4) &&
          height > look.px(16))
        draw_text(list, look, TextRole::caption, {(from.x + to.x) / 2, (from.y + to.y) / 2},
                  text_on(begun ? color : mix(color, c().panel, 1 - kStillToCome)), number, {.5f, .5f});
    }
  }
  void moment(float left, float right, float top, float bottom) const {
    const float at = x(now, left, right);
    list->AddLine({at, top}, {at, bottom}, c().text, look.px(1.5f));
  }

  void memory() const {
    double most_bytes = 1;
    for (const sim::MemoryTimePoint& point : film.levels)
      most_bytes = std::max(most_bytes, static_cast<double>(sim::total(point.bytes).value));
    const float gauge = std::min(look.px(190), (most.x - least.x) * .4f),
                right = most.x - gauge - look.px(12);
    const float bottom = most.y - look.px(kRow + 6);
    const auto y = [&](double bytes) {
      return bottom - (bottom - least.y) * static_cast<float>(bytes / (1.04 * most_bytes));
    };
    // The level that time has passed under, class upon class.
    for (std::size_t i = 0; i < film.levels.size(); ++i) {
      const sim::MemoryTimePoint& point = film.levels[i];
      const double until = i + 1 < film.levels.size() ? film.levels[i + 1].time.value : film.end;
      // Whole pixels: faint columns that overlap would show as stripes.
      const float from = std::floor(x(point.time.value, least.x, right)),
                  to = std::floor(x(until, least.x, right));
      if (to <= from) continue;
      const bool passed = point.time.value <= now;
      double sum = 0;
      for (std::size_t k = 0; k < point.bytes.size(); ++k) {
        const auto bytes = static_cast<double>(point.bytes[k].value);
        if (bytes <= 0) continue;
        const ImU32 color = c().memory[k];
        list->AddRectFilled({from, y(sum + bytes)}, {to, y(sum)},
                            passed ? color : with_alpha(color, kStillToCome));
        sum += bytes;
      }
    }
    moment(least.x, right, least.y, bottom);
    const sim::MemoryTimePoint& level = film.level_at(now);
    const float left = right + look.px(12), width = look.px(22);
    // What will be large has its name from the start: its colour is seen.
    const auto most_of = [this](std::size_t k) {
      std::int64_t most_at_once = 0;
      for (const sim::MemoryTimePoint& point : film.levels)
        most_at_once = std::max(most_at_once, point.bytes[k].value);
      return static_cast<double>(most_at_once);
    };
    double sum = 0;
    float free_above = bottom;
    for (std::size_t k = 0; k < level.bytes.size(); ++k) {
      const auto bytes = static_cast<double>(level.bytes[k].value);
      if (bytes <= 0) continue;
      const float upper = y(sum + bytes), lower = y(sum);
      list->AddRectFilled({left, upper}, {left + width, lower}, c().memory[k]);
      // Beside its part, or as near above it as there is room.
      const float line = text_size_of(look, TextRole::caption, "x").y;
      const float middle = std::min((upper + lower) / 2, free_above - line / 2);
      if (most_of(k) > kWorthAName * most_bytes && middle - line / 2 >= least.y) {
        const std::string words =
            std::string(memory_category_title(static_cast<int>(k))) + " " + sim::format(level.bytes[k]);
        const float swatch = look.px(8), name = left + width + look.px(6);
        list->AddRectFilled({name, middle - swatch / 2}, {name + swatch, middle + swatch / 2}, c().memory[k],
                            look.px(2));
        draw_text(list, look, TextRole::caption, {name + swatch + look.px(5), middle}, c().text,
                  fitted(look, TextRole::caption, words, most.x - name - swatch - look.px(5)), {0, .5f});
        free_above = middle - line / 2;
      }
      sum += bytes;
    }
    rows(least.x, right, bottom + look.px(4), most.y, true);
  }

  void pipeline() const {
    float names = 0;
    for (const std::string& row : film.rows)
      names = std::max(names, text_size_of(look, TextRole::caption, row).x);
    const float left = least.x + names + look.px(8);
    const float height = (most.y - least.y) / static_cast<float>(film.rows.size());
    if (height >= text_size_of(look, TextRole::caption, "x").y * .9f)
      for (std::size_t i = 0; i < film.rows.size(); ++i)
        draw_text(list, look, TextRole::caption, {least.x, least.y + height * (static_cast<float>(i) + .5f)},
                  c().dim, film.rows[i], {0, .5f});
    rows(left, most.x, least.y, most.y, true);
    moment(left, most.x, least.y, most.y);
  }

  // Ranks around a circle, each with what it computes with; a copy of that is on its way to the next.
  void ring() const {
    const auto ranks = static_cast<float>(film.rows.size());
    const ImVec2 middle = {(least.x + most.x) / 2, (least.y + most.y) / 2};
    const float line = text_size_of(look, TextRole::caption, "x").y, gap = look.px(5);
    // As round as the place allows: where that is low, it is wide.
    const float around = (most.y - least.y) / 2 - line - gap;
    const float size = std::clamp(2.2f * around / ranks, look.px(6), look.px(14));
    const ImVec2 radius = {std::min((most.x - least.x) / 2 - size - gap - widest(film.rows), 4 * around),
                           around - size};
    const auto place = [&](float rank, float out = 0) {
      const float angle = 2 * std::numbers::pi_v<float> * rank / ranks - std::numbers::pi_v<float> / 2;
      return ImVec2{middle.x + (radius.x + out) * std::cos(angle),
                    middle.y + (radius.y + out) * std::sin(angle)};
    };
    list->AddEllipse(middle, radius, c().border, 0, 96, look.px(2));
    for (std::size_t rank = 0; rank < film.rows.size(); ++rank) {
      const ImVec2 at = place(static_cast<float>(rank));
      const Film::Span* const span = film.at(rank, now);
      if (span) {
        const float gone = static_cast<float>((now - span->start) / (span->end - span->start));
        // Who is before its owner in the ring has it last.
        const int count = static_cast<int>(film.rows.size());
        const bool last = (span->of + count - 1) % count == static_cast<int>(rank);
        if (!last)
          list->AddCircleFilled(place(static_cast<float>(rank) + gone), size * .55f,
                                color_of(c(), span->of, film.holders, false));
      }
      list->AddCircleFilled(at, size, span ? color_of(c(), span->of, film.holders, false) : c().raised);
      list->AddCircle(at, size, c().text, 0, look.px(1));
      if (size < line / 2) continue;
      const std::string shard = span ? std::to_string(span->of) : "\u2713";
      draw_text(list, look, TextRole::caption, at,
                span ? text_on(color_of(c(), span->of, film.holders, false)) : c().good, shard, {.5f, .5f});
      // Around the ring, on the side that looks away from it.
      const ImVec2 outside = place(static_cast<float>(rank), size + gap);
      draw_text(list, look, TextRole::caption, outside, c().dim, film.rows[rank],
                {.5f - (outside.x - middle.x) / (radius.x + size + gap) / 2,
                 .5f - (outside.y - middle.y) / (radius.y + size + gap) / 2});
    }
  }

  void cache() const {
    const auto count = static_cast<int>(film.rows.size());
    const float width = most.x - least.x, height = most.y - least.y;
    const int columns = std::clamp(
        static_cast<int>(std::ceil(std::sqrt(static_cast<float>(count) * width / height))), 1, count);
    const int lines = (count + columns - 1) / columns;
    const float cell = std::min(width / static_cast<float>(columns), height / static_cast<float>(lines));
    for (int i = 0; i < count; ++i) {
      const ImVec2 from = {least.x + cell * static_cast<float>(i % columns),
                           least.y + cell * static_cast<float>(i / columns)};
      const ImVec2 to = {from.x + cell - look.px(2), from.y + cell - look.px(2)};
      const Film::Span* const span = film.at(static_cast<std::size_t>(i), now);
      if (!span) {
        list->AddRect(from, to, c().border, look.px(3), 0, look.px(1));
        continue;
      }
      const ImU32 color = color_of(c(), span->of, film.holders, false);
      list->AddRectFilled(from, to, color, look.px(3));
      const std::string number = std::to_string(span->of);
      if (cell > text_size_of(look, TextRole::caption, number).x + look.px(6))
        draw_text(list, look, TextRole::caption, {(from.x + to.x) / 2, (from.y + to.y) / 2}, text_on(color),
                  number, {.5f, .5f});
    }
  }

  float widest(const std::vector<std::string>& words) const {
    float width = 0;
    for (const std::string& word : words)
      width = std::max(width, text_size_of(look, TextRole::caption, word).x);
    return width;
  }

  // Where tokens come from on the left, their experts' devices on the right, and between them who travels.
  void experts() const {
    const float names = widest(film.rows) + look.px(10),
                height = (most.y - least.y) / static_cast<float>(film.rows.size());
    const float home = least.x + names, away = least.x + names + (most.x - least.x - names) * .42f;
    const float dot = std::clamp(height * .12f, look.px(1.5f), look.px(4));
    const auto y = [&](std::size_t row) { return least.y + height * (static_cast<float>(row) + .5f); };
    double longest = 0;
    for (const Film::Span& span : film.spans) longest = std::max(longest, span.end - span.start);
    for (const Film::Span& span : film.spans) {
      const ImU32 color = color_of(c(), span.of, film.holders, false);
      draw_text(list, look, TextRole::caption, {least.x, y(span.row)}, c().dim, film.rows[span.row],
                {0, .5f});
      list->AddCircleFilled({home, y(span.row)}, look.px(4), color);
      const float width = (most.x - away) * static_cast<float>((span.end - span.start) / longest);
      const float done =
          static_cast<float>(std::clamp((now - span.start) / (span.end - span.start), 0.0, 1.0));
      const ImVec2 from = {away, y(span.row) - height * .36f},
                   to = {away + width, y(span.row) + height * .36f};
      list->AddRectFilled(from, to, with_alpha(color, kStillToCome), look.px(2));
      list->AddRectFilled(from, {from.x + width * done, to.y}, color, look.px(2));
      if (height <= text_size_of(look, TextRole::caption, "x").y * .9f) continue;
      // Over what is done and over what is not, each part of the words in its own colour.
      const std::string words = fitted(look, TextRole::caption, span.name, width - look.px(10));
      const float until = from.x + width * done;
      const auto part = [&](float left, float right, ImU32 ink) {
        if (right <= left) return;
        list->PushClipRect({left, least.y}, {right, most.y}, true);
        draw_text(list, look, TextRole::caption, {away + look.px(6), y(span.row)}, ink, words, {0, .5f});
        list->PopClipRect();
      };
      part(from.x, until, text_on(color));
      part(until, to.x, c().text);
    }
    for (std::size_t i = 0; i < film.flights.size(); ++i) {
      const Film::Flight& flight = film.flights[i];
      if (now < flight.start || now >= flight.end) continue;
      const bool out = flight.start == 0;  // else they come back
      // They set out one after the other, so that they can be told apart.
      const float late = .35f * static_cast<float>(i % 13) / 13;
      const float gone = std::clamp(
          (static_cast<float>((now - flight.start) / (flight.end - flight.start)) - late) / (1 - .35f), 0.f,
          1.f);
      const std::size_t owner = out ? flight.from : flight.to;
      const float left = out ? gone : 1 - gone;
      list->AddCircleFilled(
          {home + (away - home) * left, y(flight.from) + (y(flight.to) - y(flight.from)) * gone}, dot,
          color_of(c(), static_cast<int>(owner), film.holders, false));
    }
  }

  // Who works when; the text as it is known, and as it would be without a draft.
  void draft() const {
    const std::vector<std::string> lines = {film.rows[0], film.rows[1], "text", "without a draft"};
    const float left = least.x + std::min(widest(lines) + look.px(8), (most.x - least.x) * .4f),
                line = (most.y - least.y - look.px(12)) / 4;
    const float below = least.y + 2 * line + look.px(12);
    for (std::size_t i = 0; i < lines.size(); ++i)
      draw_text(list, look, TextRole::caption,
                {least.x, (i < 2 ? least.y : below - 2 * line) + line * (static_cast<float>(i) + .5f)},
                c().dim, fitted(look, TextRole::caption, lines[i], left - least.x - look.px(4)), {0, .5f});
    rows(left, most.x, least.y, least.y + 2 * line, false);
    for (const Film::Span& span : film.spans)
      if (span.back && span.end <= now) {  // refused
        const float middle = (x(span.start, left, most.x) + x(span.end, left, most.x)) / 2;
        draw_text(list, look, TextRole::caption, {middle, least.y + line / 2}, c().bad, "\u00D7", {.5f, .5f});
      }
    moment(left, most.x, least.y, most.y);
    const float cell = std::min(line - look.px(4), (most.x - left) / static_cast<float>(film.written.size()));
    const auto box = [&](std::size_t i, float top, ImU32 color) {
      const ImVec2 from = {left + cell * static_cast<float>(i), top + look.px(2)};
      list->AddRectFilled(from, {from.x + cell - look.px(2), from.y + std::min(cell, line - look.px(4))},
                          color, look.px(2));
    };
    for (std::size_t i = 0; i < film.written.size(); ++i) {
      if (film.written[i].time <= now)
        box(i, below,
            film.written[i].proposed ? color_of(c(), 0, film.holders, false)
                                     : color_of(c(), kModel, film.holders, false));
      if (static_cast<double>(i + 1) * film.plain_token <= now) box(i, below + line, c().mute);
    }
  }

  // Tiles of scores: the one that a row of queries works on is there, those before it are no more. Beside
  // them the part of the softmax's sum that each row knows.
  void tiles() const {
    const auto count = static_cast<float>(film.rows.size());
    const float side = std::min((most.y - least.y) / count, (most.x - least.x) * .62f / count);
    const float bars = least.x + side * count + look.px(14), gap = side > look.px(5) ? look.px(1) : 0;
    for (std::size_t i = 0; i < film.spans.size(); ++i) {
      const Film::Span& span = film.spans[i];
      const ImVec2 from = {least.x + side * static_cast<float>(span.of),
                           least.y + side * static_cast<float>(span.row)};
      const ImVec2 to = {from.x + side - gap, from.y + side - gap};
      const ImU32 color = color_of(c(), span.of, film.holders, false);
      if (span.start <= now && now < span.end)
        list->AddRectFilled(from, to, color);
      else if (span.end <= now)
        list->AddRect(from, to, with_alpha(color, .5f));
      else
        list->AddRectFilled(from, to, with_alpha(c().mute, kStillToCome));
    }
    // After the last tile of a row its sum is whole.
    std::vector<Film::Softmax> end(film.rows.size()), known(film.rows.size());
    for (std::size_t i = 0; i < film.spans.size(); ++i) {
      end[film.spans[i].row] = film.softmax[i];
      if (film.spans[i].start <= now) known[film.spans[i].row] = film.softmax[i];
    }
    for (std::size_t row = 0; row < film.rows.size(); ++row) {
      const double share = known[row].sum * std::exp(known[row].maximum - end[row].maximum) / end[row].sum;
      const float top = least.y + side * static_cast<float>(row), width = most.x - bars;
      list->AddRectFilled({bars, top}, {bars + width, top + side - gap}, with_alpha(c().mute, kStillToCome));
      list->AddRectFilled({bars, top}, {bars + width * static_cast<float>(share), top + side - gap},
                          c().predicted);
    }
  }
};

}  // namespace

void draw_film_at(ImDrawList* list, const Look& look, const Film& film, double share, ImVec2 least,
                  ImVec2 most) {
  const Canvas canvas{list, look, film, share * film.end, least, most};
  switch (film.kind) {
    case FilmKind::memory:
      return canvas.memory();
    case FilmKind::pipeline:
      return canvas.pipeline();
    case FilmKind::ring:
      return canvas.ring();
    case FilmKind::cache:
      return canvas.cache();
    case FilmKind::experts:
      return canvas.experts();
    case FilmKind::draft:
      return canvas.draft();
    case FilmKind::tiles:
      return canvas.tiles();
  }
}

bool draw_film(const Look& look, const Film& film, FilmPlayer& player) {
  const Palette& c = look.color();
  text_wrapped(look, TextRole::title, c.text, film.title);
  const float width = ImGui::GetContentRegionAvail().x, height = height_on_screen(look, film);
  const ImVec2 least = ImGui::GetCursorScreenPos();
  draw_film_at(ImGui::GetWindowDrawList(), look, film, player.share, least,
               {least.x + width, least.y + height});
  ImGui::Dummy({width, height});
  player.playing = player.playing && player.can_play;
  if (player.playing) {
    player.share = std::min(1.0, player.share + static_cast<double>(ImGui::GetIO().DeltaTime) / kSeconds);
    player.playing = player.share < 1;
  }
  if (player.can_play) {
    if (ImGui::Button(player.playing ? "Pause" : "Play")) {
      if (!player.playing && player.share >= 1) player.share = 0;
      player.playing = !player.playing;
    }
    ImGui::SameLine();
  }
  ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
  auto share = static_cast<float>(player.share);
  const ScaleUnit unit = time_unit(film.end);
  const std::string moment = unit.text(player.share * film.end) + " of " + unit.text(film.end);
  // The moment stands beneath: a percent sign in it would be a format.
  if (ImGui::SliderFloat("##moment", &share, 0, 1, "")) {
    player.share = static_cast<double>(share);
    player.playing = false;
  }
  text_wrapped(look, TextRole::body, c.predicted, moment + ": " + film.says(player.share * film.end));
  return player.playing;
}

Figure figure_of(const Film& film, const Palette& palette) {
  if (!film.levels.empty()) {
    FigurePlot plot;
    plot.x = {"time", Measure::seconds};
    plot.y = {"memory", Measure::bytes};
    std::vector<double> below(film.levels.size(), 0);
    for (std::size_t k = 0; k < static_cast<std::size_t>(sim::kBufferClasses); ++k) {
      FigureCurve curve{
          std::string(memory_category_title(static_cast<int>(k))), palette.memory[k], Mark::area, {}};
      double most = 0;
      for (std::size_t i = 0; i < film.levels.size(); ++i) {
        const auto bytes = static_cast<double>(film.levels[i].bytes[k].value);
        most = std::max(most, bytes);
        curve.points.push_back({film.levels[i].time.value, below[i] + bytes, below[i]});
        below[i] += bytes;
      }
      if (most > 0) plot.curves.push_back(std::move(curve));
    }
    return {film.title, std::move(plot)};
  }
  FigureTimeline timeline;
  timeline.rows = film.rows;
  for (const Film::Span& span : film.spans) {
    // Passes by their kind, what goes round and what sequences hold by whose it is.
    const Pass pass = span.of < 0 ? Pass::optimizer : span.back ? Pass::backward : Pass::forward;
    const bool by_pass = film.kind == FilmKind::pipeline;
    const std::string in_legend = film.kind == FilmKind::draft     ? (span.row == 1 ? "verified"
                                                                      : span.back   ? "refused"
                                                                                    : "accepted")
                                  : film.kind == FilmKind::experts ? "device " + std::to_string(span.of)
                                                                   : span.name;
    static constexpr std::string_view kPassNames[] = {"forward", "backward", "", "", "optimizer"};
    timeline.spans.push_back(
        {span.row, span.name, by_pass ? std::string(kPassNames[static_cast<std::size_t>(pass)]) : in_legend,
         by_pass ? palette.passes[static_cast<std::size_t>(pass)]
                 : color_of(palette, film.kind == FilmKind::draft && span.row == 0 ? 0 : span.of,
                            film.holders, span.back),
         span.start, span.end});
  }
  return {film.title, std::move(timeline)};
}

}  // namespace app::gui
