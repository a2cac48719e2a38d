// ridgepoint tokenize: turns text into ids and ids into text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "runtime/error.h"
#include "runtime/model_source.h"

namespace app::cli {

namespace {

struct TokenizeFlags {
  std::string model;
  std::optional<std::string> text, ids, file;
  bool special = false;
  Format format = Format::text;
};

void write_bytes(const std::string& bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

// Writes in parts, since the text of 100 million ids takes more memory than the ids.
void write_ids(std::span<const std::int32_t> ids) {
  constexpr std::size_t kAtOnce = 10'000;
  for (std::size_t begin = 0; begin < ids.size(); begin += kAtOnce) {
    const auto part = ids.subspan(begin, std::min(kAtOnce, ids.size() - begin));
    write_bytes(fmt::format("{}{}", begin > 0 ? " " : "", fmt::join(part, " ")));
  }
  write_bytes("\n");
}

ExitCode tokenize(const TokenizeFlags& flags) {
  const int given = int{flags.text.has_value()} + int{flags.ids.has_value()} + int{flags.file.has_value()};
  if (given != 1) throw UsageError("one of --text, --file and --ids says what to tokenize");
  const runtime::ModelSource source = runtime::open_model(flags.model);
  if (!source.tokenizer) throw runtime::InputError(source.origin + " comes without a tokenizer");
  const runtime::Tokenizer& tokenizer = *source.tokenizer;

  const bool from_ids = flags.ids.has_value();
  const std::vector<std::int32_t> ids =
      from_ids ? parse_token_ids(*flags.ids, "--ids")
               : tokenizer.encode(flags.text ? *flags.text : read_file(*flags.file), flags.special);
  if (flags.format == Format::json) {
    std::vector<std::string> pieces;
    for (const std::int32_t id : ids) pieces.emplace_back(tokenizer.decode(std::span(&id, 1)));
    const nlohmann::ordered_json json = {
        {"schema_version", 1}, {"ids", ids}, {"tokens", pieces}, {"text", tokenizer.decode(ids)}};
    // A token may be part of a character, whose bytes JSON shows as U+FFFD. Use --ids without --format to get
    // them exactly.
    write_bytes(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
  } else if (from_ids) {
    write_bytes(tokenizer.decode(ids));
  } else {
    write_ids(ids);
  }
  return ExitCode::fine;
}

}  // namespace

void add_tokenize(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = program.add_subcommand(
      "tokenize",
      describe("Turn text into a model's token ids, or ids into text.",
               {"ridgepoint tokenize --model smollm2-135m-instruct --text \"Hello, world\"",
                "ridgepoint tokenize --model smollm2-135m-instruct --file README.md --format json",
                "ridgepoint tokenize --model smollm2-135m-instruct --ids 19556,28,905"}));
  command->add_option("--model", flags->model, "whose tokenizer")->required()->type_name("PRESET|DIR|GGUF");
  command->add_option("--text", flags->text, "text to tokenize")->type_name("TEXT");
  command->add_option("--file", flags->file, "file to tokenize; - is stdin")->type_name("FILE");
  command->add_option("--ids", flags->ids, "ids to turn into text, to the byte")->type_name("1,2,3");
  command->add_flag("--special", flags->special, "with the marks that the model wants around a text");
  add_format(*command, flags->format, {Format::text, Format::json});
  command->callback([flags, &invocation] { invocation.run = [flags] { return tokenize(*flags); }; });
}

}  // namespace app::cli
