// Timelines in Chrome's trace event format, which Perfetto and chrome://tracing open.
#pragma once
#include <span>
#include <string>

#include "app/gui/figures/figure.h"

namespace app::gui {

// A process a timeline, a thread a row, a complete event ("X") a span, in microseconds. Figures of other
// kinds are left out; nothing for no timeline.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
std::string to_chrome_trace(std::span<const Figure> figures);

}  // namespace app::gui
