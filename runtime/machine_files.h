// What Linux tells of a machine: files of one line, and the processors that a process may use.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace runtime {

// Empty where there is no such file.
std::string first_line(const std::filesystem::path& file);

// Their numbers, rising; empty where the system does not say.
std::vector<int> own_cpus();

}  // namespace runtime
