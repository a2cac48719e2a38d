// What words in the cells of tables mean: presets/table_words.json.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

std::string lower(std::string_view text);
std::vector<std::string> words_in(std::string_view text);  // between blanks

// Names of one thing, each as its words. A cell in lower case names it if it has all words of one name.
using Names = std::vector<std::vector<std::string>>;
Names names_of(std::span<const std::string> texts);
bool is_named(const Names& names, std::string_view cell);

// What a cell means according to a list of that file; empty where it means nothing. Throws PresetError where
// there is no such list.
std::string meaning(std::string_view list, std::string_view cell);
// The same for a cell that must mean something: throws CannotPredict, which names the column, the cell and
// what it may mean.
std::string known_meaning(std::string_view list, std::string_view column, std::string_view cell);

// The hardware preset that a table means by its free text for a GPU: "A100-SXM4-80GB", "A100 (SXM,
// NVSwitch)". A chip without its form factor is taken for its SXM module.
std::optional<std::string> hardware_preset_of(std::string_view device);

}  // namespace sim
