// Text out of a file, made fit for a message.
#pragma once
#include "sim/foreign_text.h"

namespace runtime {

using sim::excerpt;

}  // namespace runtime
