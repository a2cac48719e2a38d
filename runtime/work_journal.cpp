#include "runtime/work_journal.h"

#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/error.h"
#include "sim/file_text.h"
#include "sim/json_object.h"

namespace runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::string hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += kDigits[(hash >> shift) & 15u];
  return digits;
}

Json header_of(const std::string& work, std::int64_t pieces) {
  return {{"journal", "ridgepoint plan"},
          {"schema_version", kSchemaVersion},
          {"version", RIDGEPOINT_VERSION},
          {"work", hash_of(work)},
          {"pieces", pieces}};
}

std::string differences(const Json& found, const Json& wanted) {
  std::string text;
  for (const auto& [key, value] : wanted.items())
    if (!found.contains(key) || found.at(key) != value)
      text += (text.empty() ? "" : ", ") + key + " " +
              (found.contains(key) ? sim::shown(found.at(key)) : "missing") + " instead of " + value.dump();
  return text;
}

}  // namespace

WorkJournal::WorkJournal(std::string path, std::int64_t pieces)
    : path_(std::move(path)), known_(static_cast<std::size_t>(pieces)) {}

WorkJournal WorkJournal::begin(const std::string& path, const std::string& work, std::int64_t pieces) {
  if (std::filesystem::exists(path))
    throw InputError(path + " exists: --resume goes on with it, another name begins anew");
  WorkJournal journal(path, pieces);
  journal.file_.open(path, std::ios::binary);
  journal.write(header_of(work, pieces).dump());
  return journal;
}

WorkJournal WorkJournal::resume(const std::string& path, const std::string& work, std::int64_t pieces) {
  const std::optional<std::string> content = sim::file_text(path);
  if (!content)
    throw InputError(path + " cannot be read: --resume goes on with a journal that --journal began");
  const std::string& text = *content;
  const std::size_t complete = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;

  WorkJournal journal(path, pieces);
  const Json wanted = header_of(work, pieces);
  std::size_t at = 0;
  for (std::int64_t number = 1; at < complete; ++number) {
    const std::size_t end = text.find('\n', at);
    const std::string_view line_text = std::string_view(text).substr(at, end - at);
    const Json line = sim::nested_too_deep(line_text) ? Json() : Json::parse(line_text, nullptr, false);
    at = end + 1;
    const std::string where = path + " line " + std::to_string(number);
    if (number == 1) {
      if (!line.is_object() || !line.contains("journal"))
        throw InputError(where + ": is no journal of ridgepoint plan");
      if (const std::string other = differences(line, wanted); !other.empty())
        throw InputError(where + ": is the journal of another search (" + other +
                         "): give the flags that it was begun with, or name another file");
      continue;
    }
    const bool is_piece = line.is_object() && line.contains("piece") && line["piece"].is_number_integer() &&
                          line.contains("result");
    const std::int64_t piece = is_piece ? line["piece"].get<std::int64_t>() : -1;
    if (piece < 0 || piece >= pieces)
      throw InputError(where + " is no finished piece of this search; the file was changed");
    journal.known_[static_cast<std::size_t>(piece)] = line["result"].dump();
  }
  if (complete == 0) throw InputError(path + " line 1: is no journal of ridgepoint plan");
  if (complete < text.size()) std::filesystem::resize_file(path, complete);
  journal.file_.open(path, std::ios::binary | std::ios::app);
  return journal;
}

void WorkJournal::add(std::int64_t piece, const std::string& result) {
  write("{\"piece\":" + std::to_string(piece) + ",\"result\":" + result + "}");
}

void WorkJournal::write(const std::string& line) {
  file_ << line << '\n' << std::flush;
  if (!file_) throw DeviceError(path_ + " could not be written; is the disk full, or the folder not yours?");
}

}  // namespace runtime
