// One fuzzed reader: readers/NAME.cpp defines seeds() and read(); the rest is shared. The program of a reader
// is built with libFuzzer where clang has it, and with driver.cpp everywhere.
#pragma once
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/foreign_text.h"

namespace fuzz {

// Inputs from which others are made: sound ones (presets, files of the tests, what the program itself
// writes), and such that a reader must refuse and chance makes too seldom.
std::vector<std::string> seeds();

// Makes a changed input consistent again where a format says twice what a change says once (a header's
// length), so that changes get past the first check. Does nothing unless a reader defines it.
void mend(std::string& input) __attribute__((weak));

// Reads an input as the program would. What the reader refuses it throws as sim::PresetError or
// runtime::InputError that names kFile or a file made here; any other exception is a defect, and so is a law
// that does not hold.
void read(std::string_view input);

inline constexpr const char* kFile = "input.file";  // the name of inputs that are read from memory

// Ends the program, as a crash does, unless `holds`.
void require(bool holds, const char* law);
// The same for two texts, with where they differ.
void require_same(const std::string& a, const std::string& b, const char* law);

// Runs `use`, which may not refuse: what was accepted once is accepted again.
template <class Use>
auto require_accepted(Use use, const char* law) {
  try {
    return use();
  } catch (const std::exception&) {
    require(false, law);
    throw;
  }
}

// Runs `use` on JSON; what is nested too deeply must be refused for that.
template <class Use>
auto require_shallow(std::string_view json, Use use) {
  constexpr const char* kLaw = "JSON that is nested too deeply is refused for that";
  const bool deep = sim::nested_too_deep(json).has_value();
  try {
    auto result = use();
    require(!deep, kLaw);
    return result;
  } catch (const std::exception& error) {
    require(!deep || std::string_view(error.what()).find("nested") != std::string_view::npos, kLaw);
    throw;
  }
}

// A folder of this process, empty at first, gone when it ends.
const std::filesystem::path& folder();
// Writes a file below it anew.
std::filesystem::path file(std::string_view name, std::string_view content);
std::string content(const std::filesystem::path& file);
// What lies in a folder of the repository, files of at most 24 KB with this ending.
std::vector<std::string> files_of(const std::filesystem::path& below_the_repository, std::string_view ending);

}  // namespace fuzz
