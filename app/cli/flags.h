// Pieces that the commands' flags are made of.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace app::cli {

// A command's help: what it does in a sentence, examples that can be pasted, then the flags.
std::string describe(std::string_view sentence, const std::vector<std::string_view>& examples);

// A whole number as people type it: "8k", "1.5M". In a length of tokens "8k" is 8,192 (binary_k).
CLI::Option* add_count(CLI::App& command, const std::string& flag, std::optional<std::int64_t>& value,
                       const std::string& help, bool binary_k = false);
CLI::Option* add_count(CLI::App& command, const std::string& flag, std::int64_t& value,
                       const std::string& help);

enum class Format { text, json, csv, markdown };

// Adds --format; `offered` are the formats that the command writes.
void add_format(CLI::App& command, Format& value, const std::vector<Format>& offered);

// "1,2,3" or "1 2 3". Throws UsageError naming the flag.
std::vector<std::int32_t> parse_token_ids(const std::string& text, const std::string& flag);

// The whole of a file. Throws runtime::InputError. "-" is stdin.
std::string read_file(const std::string& path);

// Writes PATH.unfinished, then renames it, so no file is half written. Throws runtime::DeviceError.
void write_file(const std::string& path, const std::string& content);

}  // namespace app::cli
