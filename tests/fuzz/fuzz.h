// One fuzzed reader: readers/NAME.cpp defines seeds() and read(); the rest is shared. The program of a reader
// is built with libFuzzer where clang has it, and with driver.cpp everywhere.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

// Sound inputs, from which others are made. Presets, files of the tests, and what the program itself writes.
std::vector<std::string> seeds();

// Reads an input as the program would. What the reader refuses it throws as sim::PresetError or
// runtime::InputError that names kFile or a file made here; any other exception is a defect, and so is a law
// that does not hold.
void read(std::string_view input);

inline constexpr const char* kFile = "input.file";  // the name of inputs that are read from memory

// Ends the program, as a crash does, unless `holds`.
void require(bool holds, const char* law);
// The same for two texts, with where they differ.
void require_same(const std::string& a, const std::string& b, const char* law);

// A folder of this process, empty at first, gone when it ends.
const std::filesystem::path& folder();
// Writes a file below it anew.
std::filesystem::path file(std::string_view name, std::string_view content);
std::string content(const std::filesystem::path& file);
// What lies in a folder of the repository, files of at most 24 KB with this ending.
std::vector<std::string> files_of(const std::filesystem::path& below_the_repository, std::string_view ending);

}  // namespace fuzz
