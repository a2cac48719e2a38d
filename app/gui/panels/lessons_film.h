// A film of a plan: it is played, or dragged to any moment. One component for all kinds of films.
#pragma once
#include "app/gui/figures/figure.h"
#include "app/gui/theme.h"
#include "app/lesson/film.h"

namespace app::gui {

struct FilmPlayer {
  double share = 0;  // of the film that has passed, 0 to 1
  bool playing = false;
  bool can_play = true;  // else it is dragged only
};

// The picture at the player's moment, its sentence, a button and a slider, over the width that there is.
// True while it moves of itself.
bool draw_film(const Look& look, const lesson::Film& film, FilmPlayer& player);
// The picture alone, at a place and of a size.
void draw_film_at(ImDrawList* list, const Look& look, const lesson::Film& film, double share, ImVec2 least,
                  ImVec2 most);
// All of it at once, for paper.
Figure figure_of(const lesson::Film& film, const Palette& palette);

}  // namespace app::gui
