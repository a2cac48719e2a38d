// Catch2 as Debian 12 (2.13) or newer systems (3.x) ship it.
#pragma once
#include <string>
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

// What this machine lacks is no pass: ctest calls a test that says so skipped (tests/CMakeLists.txt). Ends
// the test case. (Catch2 has SKIP from 3.3 on.)
#define SKIP_WITHOUT(what)                  \
  do {                                      \
    WARN("skipped: here is no " << (what)); \
    return;                                 \
  } while (false)

// A matcher for text within text: what 2 calls Contains is ContainsSubstring in 3, where Contains is of
// ranges.
inline auto contains(const std::string& part) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}
