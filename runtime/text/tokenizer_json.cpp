// Tokenizer::from_tokenizer_json: Hugging Face's tokenizer.json, and the end tokens from the files beside it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/error.h"
#include "runtime/formats/excerpt.h"
#include "runtime/formats/mapped_file.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/vocabulary.h"
#include "sim/foreign_text.h"

namespace runtime {
namespace {

using nlohmann::json;

json parse_file(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  if (const auto byte = sim::nested_too_deep(file.text()))
    throw InputError(path.string() + ": is nested too deeply (at byte " + std::to_string(*byte) + ")");
  try {
    json root = json::parse(file.text().begin(), file.text().end());
    if (root.is_object()) return root;
  } catch (const json::parse_error& error) {
    throw InputError(path.string() + ": is not valid JSON (at byte " + std::to_string(error.byte) + ")");
  } catch (const json::out_of_range&) {
    throw InputError(path.string() + ": is not valid JSON: the number at byte " +
                     std::to_string(sim::number_beyond_double(file.text())) +
                     " is beyond what a double holds, 1.8e308");
  }
  throw InputError(path.string() + ": must be a JSON object");
}

// Reads the parts of one tokenizer.json; every refusal names the file and the field.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : where_(path.string()), root_(parse_file(path)) {}

  TokenizerDescription read() {
    read_normalizer(member(root_, "normalizer"));
    read_pre_tokenizer(member(root_, "pre_tokenizer"));
    read_model(member(root_, "model"));
    read_added_tokens(member(root_, "added_tokens"));
    read_post_processor(member(root_, "post_processor"));
    return std::move(description_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw InputError(where_ + ": " + excerpt(why)); }

  // A member of an object, null when it is not there.
  static const json& member(const json& object, const char* name) {
    static const json null;
    const auto found = object.is_object() ? object.find(name) : object.end();
    return object.is_object() && found != object.end() ? *found : null;
  }

  std::string text(const json& object, const char* name, const std::string& field) const {
    const json& value = member(object, name);
    if (!value.is_string()) refuse(field + "." + name + " must be a string");
    return value.get<std::string>();
  }

  bool flag(const json& object, const char* name, bool otherwise, const std::string& field) const {
    const json& value = member(object, name);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(field + "." + name + " must be true or false");
    return value.get<bool>();
  }

  std::int32_t token_id(const json& value, const std::string& field) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= kMaxVocabulary) {
      refuse(field + " must be a token id from 0 to " + std::to_string(kMaxVocabulary - 1) + ", not " +
             value.dump());
    }
    return value.get<std::int32_t>();
  }

  // The parts of a {"type": "Sequence", LIST: [...]}, or the one part itself; none for null.
  std::vector<json> parts(const json& value, const char* list, const std::string& field) const {
    if (value.is_null()) return {};
    if (!value.is_object()) refuse(field + " must be an object or null");
    if (text(value, "type", field) != "Sequence") return {value};
    const json& members = member(value, list);
    if (!members.is_array()) refuse(field + "." + list + " must be a list");
    return members.get<std::vector<json>>();
  }

  void read_normalizer(const json& normalizer) {
    for (const json& part : parts(normalizer, "normalizers", "normalizer")) {
      const std::string type = text(part, "type", "normalizer");
      if (type != "NFC") refuse("normalizer " + type + " is not supported; NFC or none is");
      description_.nfc = true;
    }
  }

  void read_pre_tokenizer(const json& pre_tokenizer) {
    bool byte_level = false;
    for (const json& part : parts(pre_tokenizer, "pretokenizers", "pre_tokenizer")) {
      const std::string type = text(part, "type", "pre_tokenizer");
      const std::string field = "pre_tokenizer " + type;
      if (type == "ByteLevel") {
        byte_level = true;
        if (flag(part, "add_prefix_space", true, field))
          description_.steps.push_back(PreTokenizerStep::prefix_space);
        if (flag(part, "use_regex", true, field)) description_.steps.push_back(PreTokenizerStep::gpt2);
      } else if (type == "Digits") {
        description_.steps.push_back(flag(part, "individual_digits", false, field)
                                         ? PreTokenizerStep::each_number
                                         : PreTokenizerStep::number_runs);
      } else if (type == "Split") {
        description_.steps.push_back(split_step(part, field));
      } else {
        refuse(field + " is not supported; ByteLevel, Digits and Split are");
      }
    }
    if (!byte_level) refuse("pre_tokenizer has no ByteLevel; only byte-level BPE is supported");
  }

  PreTokenizerStep split_step(const json& part, const std::string& field) const {
    const std::string regex = text(member(part, "pattern"), "Regex", field + ".pattern");
    const std::string behavior = text(part, "behavior", field);
    // These expressions match every character, so keeping only the matches is the same as isolating
    // them.
    const bool keeps_matches = behavior == "Removed" && flag(part, "invert", false, field);
    const auto step = step_of_regex(regex);
    if (!step) refuse(field + ".pattern is none of GPT-2's, Llama 3's and Qwen2's: " + regex);
    const bool digits = *step == PreTokenizerStep::each_number || *step == PreTokenizerStep::number_runs;
    if (behavior != "Isolated" && (!keeps_matches || digits)) {
      refuse(field + ".behavior is " + behavior + "; Isolated is supported");
    }
    return *step;
  }

  void read_model(const json& model) {
    if (const std::string type = text(model, "type", "model"); type != "BPE") {
      refuse("model.type is " + type + "; only BPE is supported");
    }
    if (flag(model, "byte_fallback", false, "model"))
      refuse("model.byte_fallback is not supported; byte-level BPE is");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (const json& value = member(model, affix); !value.is_null() && value != "") {
        refuse(std::string("model.") + affix + " is not supported; it must be null");
      }
    }
    description_.ignore_merges = flag(model, "ignore_merges", false, "model");

    const json& vocab = member(model, "vocab");
    if (!vocab.is_object() || vocab.empty()) refuse("model.vocab must be an object of token to id");
    std::vector<std::string_view> written;
    for (auto entry = vocab.begin(); entry != vocab.end(); ++entry) {
      const auto id = static_cast<std::size_t>(token_id(*entry, "model.vocab['" + entry.key() + "']"));
      if (id >= written.size()) written.resize(id + 1);
      if (!written[id].empty()) refuse("model.vocab gives id " + std::to_string(id) + " twice");
      written[id] = entry.key();  // lies in root_ until the description is made
    }

    const json& listed = member(model, "merges");
    if (!listed.is_array()) refuse("model.merges must be a list");
    std::vector<std::pair<std::string_view, std::string_view>> merges;
    merges.reserve(listed.size());
    for (const json& merge : listed) {
      if (merge.is_string()) {
        merges.push_back(split_merge(where_, merge.get_ref<const std::string&>()));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        merges.emplace_back(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
      } else {
        refuse("model.merges must hold \"left right\" or [\"left\", \"right\"], not " + merge.dump());
      }
    }
    set_vocabulary(where_, written, merges, description_);
  }

  void read_added_tokens(const json& list) {
    if (list.is_null()) return;
    if (!list.is_array()) refuse("added_tokens must be a list");
    for (const json& entry : list) {
      AddedToken token;
      token.content = text(entry, "content", "added_tokens");
      const std::string field = "added_tokens '" + token.content + "'";
      token.id = token_id(member(entry, "id"), field + ".id");
      token.special = flag(entry, "special", false, field);
      token.lstrip = flag(entry, "lstrip", false, field);
      token.rstrip = flag(entry, "rstrip", false, field);
      token.normalized = flag(entry, "normalized", !token.special, field);
      if (flag(entry, "single_word", false, field))
        refuse(field + ".single_word is not supported; it must be false");
      const auto id = static_cast<std::size_t>(token.id);
      if (id >= description_.tokens.size()) description_.tokens.resize(id + 1);
      description_.tokens[id] = token.content;
      description_.added.push_back(std::move(token));
    }
  }

  // Only a template adds tokens: those before the text's place in "single", and those after.
  void read_post_processor(const json& post_processor) {
    for (const json& part : parts(post_processor, "processors", "post_processor")) {
      const std::string type = text(part, "type", "post_processor");
      if (type == "ByteLevel") continue;  // trims offsets, which are not kept here
      if (type != "TemplateProcessing")
        refuse("post_processor " + type + " is not supported; TemplateProcessing is");
      bool before_text = true;
      for (const json& piece : member(part, "single")) {
        if (!member(piece, "Sequence").is_null()) {
          before_text = false;
          continue;
        }
        const std::string name = text(member(piece, "SpecialToken"), "id", "post_processor.single");
        const json& ids = member(member(member(part, "special_tokens"), name.c_str()), "ids");
        if (!ids.is_array()) refuse("post_processor.special_tokens['" + name + "'].ids must be a list");
        for (const json& id : ids) {
          auto& side = before_text ? description_.prefix : description_.suffix;
          side.push_back(token_id(id, "post_processor.special_tokens['" + name + "'].ids"));
          if (static_cast<std::size_t>(side.back()) >= description_.tokens.size()) {
            refuse("post_processor.special_tokens['" + name + "'].ids lies outside the vocabulary");
          }
        }
      }
    }
  }

  std::string where_;
  json root_;
  TokenizerDescription description_;
};

// bos_token_id and eos_token_id of generation_config.json or config.json (a number or a list), else bos_token
// and eos_token of tokenizer_config.json (a string or {"content": ...}). Ids outside the vocabulary are no
// tokens of this tokenizer and are passed over: configurations without an end token write such.
void read_end_tokens(const std::filesystem::path& folder, TokenizerDescription& description) {
  const auto vocabulary = static_cast<std::uint64_t>(description.tokens.size());
  const auto ids_of = [&](const json& value) {
    std::set<std::int32_t> ids;
    for (const json& id : value.is_array() ? value : json::array({value})) {
      if (id.is_number_unsigned() && id.get<std::uint64_t>() < vocabulary) ids.insert(id.get<std::int32_t>());
    }
    return ids;
  };
  const auto take = [&](const std::set<std::int32_t>& bos, const std::set<std::int32_t>& eos) {
    if (!description.bos && !bos.empty()) description.bos = *bos.begin();
    if (description.eos.empty()) description.eos.assign(eos.begin(), eos.end());
  };
  std::error_code ignored;
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!std::filesystem::exists(folder / name, ignored)) continue;
    const json config = parse_file(folder / name);
    take(ids_of(config.value("bos_token_id", json())), ids_of(config.value("eos_token_id", json())));
  }
  if (!std::filesystem::exists(folder / "tokenizer_config.json", ignored)) return;
  const json config = parse_file(folder / "tokenizer_config.json");
  const auto id_of_text = [&](const char* name) {
    json value = config.value(name, json());
    if (value.is_object()) value = value.value("content", json());
    const auto found =
        std::ranges::find_if(description.added, [&](const AddedToken& t) { return value == t.content; });
    return found == description.added.end() ? std::set<std::int32_t>{} : std::set{found->id};
  };
  take(id_of_text("bos_token"), id_of_text("eos_token"));
}

}  // namespace

Tokenizer Tokenizer::from_tokenizer_json(const std::filesystem::path& path) {
  TokenizerDescription description = Reader(path).read();
  read_end_tokens(path.parent_path(), description);
  return Tokenizer(std::move(description));
}

}  // namespace runtime
