// Where numbers come from, for whoever shows one.
#pragma once
#include <string>

#include "app/gui/panels/panels.h"

namespace app::gui {

// The formula of a number and the line with its values put in; empty where there is no prediction.
std::string explained(const PanelContext& context, Quantity quantity);

}  // namespace app::gui
