// What a run costs, in the words that Economics and Overview share.
#pragma once
#include <string>

#include "sim/economics/run_cost.h"

namespace app::gui {

std::string dollars(double usd);                    // "$0.0746", "$12,018", "$1.2 million"
std::string days_text(double days);                 // "7.49 min", "20.5 days", "1.2 thousand days"
std::string energy_text(const sim::RunCost& cost);  // "191 Wh", "22.8 MWh"
std::string carbon_text(const sim::RunCost& cost);  // "90.6 g CO2e", "10.8 t CO2e"

}  // namespace app::gui
