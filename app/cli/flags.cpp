#include "app/cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "app/cli/exit_code.h"
#include "runtime/error.h"
#include "sim/file_text.h"
#include "sim/format.h"

namespace app::cli {

namespace {

std::int64_t count_of(const std::string& flag, const std::string& text, bool binary_k) {
  std::int64_t value = 0;
  if (!sim::parse_count(text, value, binary_k))
    throw UsageError(fmt::format("{} takes a whole number, as 8, 8k or 1.5M: \"{}\" is none", flag, text));
  return value;
}

std::string_view name(Format format) {
  switch (format) {
    case Format::text:
      return "text";
    case Format::json:
      return "json";
    case Format::csv:
      return "csv";
    case Format::markdown:
      return "md";
  }
  return "";
}

}  // namespace

std::string describe(std::string_view sentence, const std::vector<std::string_view>& examples) {
  std::string text(sentence);
  text += "\n\nExamples:\n";
  for (const std::string_view example : examples) text += fmt::format("  {}\n", example);
  return text;
}

CLI::Option* add_count(CLI::App& command, const std::string& flag, std::optional<std::int64_t>& value,
                       const std::string& help, bool binary_k) {
  return command
      .add_option_function<std::string>(
          flag, [&value, flag, binary_k](const std::string& text) { value = count_of(flag, text, binary_k); },
          help)
      ->type_name("N");
}

CLI::Option* add_count(CLI::App& command, const std::string& flag, std::int64_t& value,
                       const std::string& help) {
  return command
      .add_option_function<std::string>(
          flag, [&value, flag](const std::string& text) { value = count_of(flag, text, false); },
          fmt::format("{} (default {})", help, value))
      ->type_name("N");
}

void add_format(CLI::App& command, Format& value, const std::vector<Format>& offered) {
  std::map<std::string, Format> by_name;
  std::vector<std::string_view> names;
  for (const Format format : offered) {
    by_name.emplace(name(format), format);
    names.push_back(name(format));
  }
  const std::string list = fmt::format("{}", fmt::join(names, "|"));
  command
      .add_option_function<std::string>(
          "--format",
          [&value, by_name, list](const std::string& text) {
            const auto found = by_name.find(text);
            if (found == by_name.end())
              throw UsageError(fmt::format("--format is {}, not \"{}\"", list, text));
            value = found->second;
          },
          "how the result is written")
      ->type_name(list);
}

std::vector<std::int32_t> parse_token_ids(const std::string& text, const std::string& flag) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto is_separator = [](char c) { return c == ',' || c == ' ' || c == '\n' || c == '\t'; };
  while (at != end) {
    if (is_separator(*at)) {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (next != end && !is_separator(*next)))
      throw UsageError(fmt::format("{} takes token ids, as 1,2,3: \"{}\" is none", flag,
                                   std::string(at, std::find_if(at, end, is_separator))));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

std::string read_file(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  if (std::optional<std::string> text = sim::file_text(path)) return *std::move(text);
  throw runtime::InputError(path + (std::filesystem::exists(path) ? " cannot be read" : " does not exist"));
}

void write_file(const std::string& path, const std::string& content) {
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (!file) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw runtime::DeviceError(path + " could not be written; is the disk full, or the folder not yours?");
  }
  std::error_code wrong;
  std::filesystem::rename(unfinished, path, wrong);
  if (!wrong) return;
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);
  throw runtime::DeviceError(path + " could not be put in place (" + wrong.message() +
                             "); what stood there before is unchanged");
}

}  // namespace app::cli
