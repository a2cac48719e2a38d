// Sliders for the limits that both searches of the planner panel have.
#pragma once
#include <string>

#include "app/gui/jobs/plan_limits.h"
#include "app/gui/widgets/fields.h"
#include "sim/planner/search.h"

namespace app::gui {

// A limit where one end of the slider stands for none; 0 in `limit`.
enum class NoLimit { at_low_end, at_high_end };
void limit_slider(const Look& look, const char* words, double& limit, SliderRange range, NoLimit none,
                  std::string (*text)(double), float width);

// Limits of money and energy, where the tariff knows them.
void draw_plan_limits(const Look& look, PlanLimits& limits, const sim::Tariff& tariff, float width);

// US dollars for a million tokens, in three significant digits that line up in a column: "0.150", "12.4".
std::string dollar_digits(double usd);

}  // namespace app::gui
