// Training data: what becomes of files, and which tokens a batch holds.
#include "runtime/text/token_data.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace {

using runtime::BatchReader;
using runtime::TokenData;
using runtime::Tokenizer;

template <typename Token>
std::string binary(const std::vector<Token>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)};
}

std::vector<std::int32_t> all_of(const TokenData& data) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.size()));
  data.read(0, tokens);
  return tokens;
}

TokenData counting(std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenData::from_tokens("counting", std::move(tokens));
}

}  // namespace

TEST_CASE("a .bin is read as 16-bit tokens up to a vocabulary of 65,536, then as 32-bit ones") {
  const TemporaryFolder folder;
  const auto narrow = folder.write("narrow.bin", binary<std::uint16_t>({1, 65535, 3}));
  CHECK(all_of(TokenData::load(narrow, nullptr, 65536)) == std::vector<std::int32_t>{1, 65535, 3});
  const auto wide = folder.write("wide.bin", binary<std::uint32_t>({1, 65536, 99999}));
  CHECK(all_of(TokenData::load(wide, nullptr, 100000)) == std::vector<std::int32_t>{1, 65536, 99999});
}

TEST_CASE("a token beyond the vocabulary is refused with file, position, id and vocabulary") {
  const TemporaryFolder folder;
  const auto path = folder.write("t.bin", binary<std::uint16_t>({1, 2, 256, 3}));
  CHECK_THROWS_WITH(TokenData::load(path, nullptr, 256),
                    path.string() + ": token 256 at position 2 lies outside the model's vocabulary of 256");
  const auto huge = folder.write("h.bin", binary<std::uint32_t>({1, 0xFFFFFFFF}));
  CHECK_THROWS_WITH(
      TokenData::load(huge, nullptr, 100000),
      huge.string() + ": token 4294967295 at position 1 lies outside the model's vocabulary of 100000");
  const Tokenizer bytes = Tokenizer::bytes();
  const auto text = folder.write("t.txt", "abz");
  CHECK_THROWS_WITH(TokenData::load(text, &bytes, 'z'),
                    text.string() + ": token 122 at position 2 lies outside the model's vocabulary of 122");
}

TEST_CASE("what is no training data is refused with a sentence") {
  const TemporaryFolder folder;
  const Tokenizer bytes = Tokenizer::bytes();
  const auto odd = folder.write("odd.bin", "abc");
  CHECK_THROWS_WITH(TokenData::load(odd, nullptr, 256),
                    odd.string() + ": has 3 bytes; a multiple of the 2 bytes of a token is needed");
  CHECK_THROWS_AS(TokenData::load(folder.write("empty.bin", ""), nullptr, 256), runtime::InputError);
  CHECK_THROWS_AS(TokenData::load(folder.write("empty.txt", ""), &bytes, 256), runtime::InputError);
  CHECK_THROWS_AS(TokenData::load(folder.write("nul.txt", std::string_view("a\0b", 3)), &bytes, 256),
                  runtime::InputError);
  CHECK_THROWS_AS(TokenData::load(folder.write("a.txt", "z"), nullptr, 'z'), runtime::InputError);
  CHECK_THROWS_AS(TokenData::load(folder.path() / "absent.txt", &bytes, 256), runtime::InputError);
  CHECK_THROWS_WITH(BatchReader(counting(8), 1, 8),
                    "counting: holds 8 tokens; a sequence length of 8 needs at least 9");
}

TEST_CASE("a folder's texts are read in the order of their paths, what is no text is passed over") {
  const TemporaryFolder folder;
  folder.write("b.py", "B");
  folder.write("a/z.txt", "Z");
  folder.write("a/b/deep.md", "D");
  folder.write("c.bin", std::string_view("\0\1", 2));
  folder.write("latin1.txt", "\xe9t\xe9");
  folder.write(".git/config", "hidden");
  folder.write("site-packages/p.py", "package");
  CHECK(Tokenizer::bytes().decode(all_of(TokenData::load(folder.path(), nullptr, 256))) == "DZB");
}

TEST_CASE(
    "row b of sequential batch i holds the tokens from (i*B + b)*T, targets one further, and begins again") {
  const TokenData data = counting(1 + 7 * 4 + 2);  // 7 windows of 4, and 2 tokens that no window holds
  const BatchReader reader(data, 3, 4);
  CHECK(reader.windows() == 7);
  for (std::int64_t batch = 0; batch < 10; ++batch) {
    std::vector<std::int32_t> inputs(12), targets(12);
    reader.read(batch, inputs, targets);
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t t = 0; t < 4; ++t) {
        const std::int64_t expected = (batch * 3 + row) % 7 * 4 + t;
        CHECK(inputs[static_cast<std::size_t>(row * 4 + t)] == expected);
        CHECK(targets[static_cast<std::size_t>(row * 4 + t)] == expected + 1);
      }
    }
  }
}

TEST_CASE(
    "shuffled: each epoch is a permutation of the windows, another each time, the same for the same seed") {
  for (const std::int64_t windows : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000}) {
    const TokenData data = counting(windows + 1);
    const BatchReader reader(data, 1, 1, 42);
    const BatchReader again(data, 1, 1, 42);
    const BatchReader other_seed(data, 1, 1, 43);
    std::set<std::vector<std::int64_t>> orders;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> order, other;
      for (std::int64_t i = 0; i < windows; ++i) {
        order.push_back(reader.window_at(epoch * windows + i));
        other.push_back(other_seed.window_at(epoch * windows + i));
        CHECK(again.window_at(epoch * windows + i) == order.back());
      }
      if (windows >= 16) {
        CHECK(order != other);
        CHECK_FALSE(std::ranges::is_sorted(order));
      }
      orders.insert(order);
      std::ranges::sort(order);
      for (std::int64_t i = 0; i < windows; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
    }
    if (windows >= 16) CHECK(orders.size() == 3);
  }
}

TEST_CASE("the default text is a Python standard library, or a sentence that asks for --data") {
  try {
    CHECK(std::filesystem::exists(runtime::default_training_text() / "os.py"));
  } catch (const runtime::InputError& error) {
    CHECK(std::string(error.what()).find("--data") != std::string::npos);
  }
}
