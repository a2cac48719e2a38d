// The data behind unicode.h, written by scripts/make_unicode_tables.py. Sorted by code point.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/text/unicode.h"

namespace runtime::unicode_tables {

struct ClassRange {
  char32_t first, last;
  CodepointClass value;
};
struct CombiningRange {
  char32_t first, last;
  std::uint8_t value;  // canonical combining class, never 0
};
// One step of canonical decomposition; `second` is 0 where there is one part. `composes`: NFC puts it
// together again.
struct Decomposition {
  char32_t codepoint, first, second;
  bool composes;
};

std::span<const ClassRange> classes();
std::span<const CombiningRange> combining_classes();
std::span<const Decomposition> decompositions();

}  // namespace runtime::unicode_tables
