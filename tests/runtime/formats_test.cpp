// safetensors and GGUF: values that other implementations wrote, round trips, and every way in which a file
// can be wrong.
#include <sys/resource.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "runtime/error.h"
#include "runtime/formats/gguf.h"
#include "runtime/formats/safetensors.h"
#include "runtime/text/tokenizer.h"
#include "runtime/this_machine.h"
#include "source_folder.h"
#include "tests/support/catch.h"
#include "tests/support/gguf_file.h"
#include "tests/support/temporary_folder.h"

namespace {

using nlohmann::json;
using runtime::Gguf;
using runtime::InputError;
using runtime::Safetensors;
using tests::gguf_header;
using tests::gguf_tensor;
using tests::gguf_text;
using tests::padded;
using tests::raw;

const std::filesystem::path kData = RIDGEPOINT_SOURCE_DIR "/tests/runtime/data";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string safetensors(const std::string& header, std::size_t data_bytes) {
  return raw<std::uint64_t>(header.size()) + header + std::string(data_bytes, '\0');
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// The sentence with which a file is refused; empty when it is accepted. Whatever is accepted must also be
// readable.
template <typename File>
std::string refusal(const std::filesystem::path& path) {
  try {
    const File file = File::open(path);
    for (const auto& tensor : file.tensors()) {
      std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
      file.read_as_f32(tensor.name, values);
    }
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

template <typename File>
void check_values(const File& file, const json& expected) {
  for (const auto& item : expected.items()) {
    CAPTURE(item.key());
    std::vector<float> values(item.value().size());
    file.read_as_f32(item.key(), values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const json& value = item.value()[i];  // infinities are written as text: JSON has none
      const float wanted = value.is_string() ? std::stof(value.get<std::string>()) : value.get<float>();
      CAPTURE(i);
      CHECK(values[i] == wanted);
    }
  }
}

const json& expected_values() {
  static const json loaded = json::parse(std::ifstream(kData / "formats.json"));
  return loaded;
}

}  // namespace

TEST_CASE("every GGUF tensor type is widened as the gguf package does, bit for bit") {
  const Gguf file = Gguf::open(kData / "small.gguf");
  CHECK(file.version() == 3);
  CHECK(file.tensors().size() == 16);
  CHECK(file.at("F32").shape == std::vector<std::int64_t>{3, 5});
  CHECK(file.at("Q6_K").shape == std::vector<std::int64_t>{2, 256});
  check_values(file, expected_values()["gguf"]);
}

TEST_CASE(
    "Codes of GGUF's blocks, times their scale, plus their minimum, are the values that blocks stand for") {
  const Gguf file = Gguf::open(kData / "small.gguf");
  std::size_t coded = 0;
  for (const runtime::GgufTensor& tensor : file.tensors()) {
    const runtime::CodeFormat format = runtime::code_format(tensor.type);
    if (format.bits == 0) continue;
    ++coded;
    CAPTURE(tensor.name);
    const auto elements = static_cast<std::size_t>(tensor.element_count());
    const auto group = static_cast<std::size_t>(format.group), groups = elements / group;
    const std::size_t blocks = format.in_blocks ? elements / 256 : 0;
    std::vector<float> values(elements), scales(groups), minima(groups), of_scales(blocks), of_minima(blocks);
    std::vector<std::uint8_t> codes(elements);
    runtime::dequantize(tensor.type, tensor.bytes, values);
    runtime::read_codes(tensor.type, tensor.bytes, {codes, scales, minima, of_scales, of_minima});
    const auto whole = [](float number, float times) {  // in no more than 8 bits, with the sign
      return times * std::nearbyint(number / times) == number && std::abs(number / times) < 256;
    };
    for (std::size_t g = 0; g < groups; ++g) {
      if (!format.own_minima) REQUIRE(minima[g] == -std::ldexp(scales[g], format.bits - 1));
      if (!format.in_blocks) continue;
      const std::size_t block = g * group / 256;
      REQUIRE(whole(scales[g], of_scales[block]));
      if (format.own_minima) REQUIRE((minima[g] == 0 || whole(minima[g], of_minima[block])));
    }
    for (std::size_t e = 0; e < elements; ++e) {
      REQUIRE(codes[e] < 1 << format.bits);
      const double value = double{scales[e / group]} * codes[e] + minima[e / group];
      REQUIRE(static_cast<float>(value) == values[e]);
    }
  }
  CHECK(coded == 13);
}

TEST_CASE("every GGUF metadata type is read") {
  const Gguf file = Gguf::open(kData / "small.gguf");
  CHECK(file.integer("test.uint8") == 200);
  CHECK(file.integer("test.int8") == -100);
  CHECK(file.integer("test.uint16") == 60000);
  CHECK(file.integer("test.int16") == -30000);
  CHECK(file.integer("test.uint32") == 4000000000);
  CHECK(file.integer("test.int32") == -2000000000);
  CHECK(file.integer("test.int64") == -(std::int64_t{1} << 62));
  CHECK(std::get<std::uint64_t>(file.metadata().at("test.uint64")) == (std::uint64_t{1} << 63) + 1);
  CHECK(file.number("test.float32") == 0.5);
  CHECK(file.number("test.float64") == 0.1);
  CHECK(file.boolean("test.bool"));
  CHECK(file.string("test.string") == "naïve €");
  CHECK(file.strings("test.strings") == std::vector<std::string_view>{"a", "", "€"});
  CHECK(file.integers("test.integers") == std::vector<std::int64_t>{1, -2, 3});
  CHECK(file.numbers("test.numbers") == std::vector<double>{0.5, -0.25});

  CHECK_THROWS_AS(file.integer("test.uint64"), InputError);  // does not fit
  CHECK_THROWS_AS(file.integer("test.float32"), InputError);
  CHECK_THROWS_AS(file.string("test.bool"), InputError);
  CHECK_THROWS_AS(file.strings("test.integers"), InputError);
  CHECK_THROWS_AS(file.integers("test.strings"), InputError);
  CHECK_THROWS_WITH(file.integer("absent"), (kData / "small.gguf").string() + ": has no metadata 'absent'");
}

TEST_CASE("safetensors that Hugging Face wrote are read, bit for bit") {
  const Safetensors file = Safetensors::open(kData / "small.safetensors");
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.at("half").dtype == "F16");
  CHECK(file.at("plain").shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.at("scalar").shape.empty());
  CHECK(file.find("absent") == nullptr);
  check_values(file, expected_values()["safetensors"]);

  std::vector<float> two(2);
  CHECK_THROWS_AS(file.read_as_f32("plain", two), InputError);
  CHECK_THROWS_AS(file.at("absent"), InputError);
}

TEST_CASE("what is written as safetensors is read back bit for bit, and replaces what stood there") {
  const TemporaryFolder folder;
  const auto path = folder.write("weights.safetensors", "what stood there");
  const std::vector<float> matrix = {
      1.0f, -0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity(),
      0.1f, -3e38f};
  const std::vector<float> scalar = {2.0f};
  const std::vector<runtime::SafetensorsF32> tensors = {
      {"z.weight", {2, 3}, matrix}, {"a", {}, scalar}, {"none", {0, 7}, {}}};
  runtime::write_safetensors(path, tensors, {{"step", "12"}});

  const Safetensors file = Safetensors::open(path);
  CHECK(file.metadata().at("step") == "12");
  REQUIRE(file.tensors().size() == 3);
  std::vector<float> values(6);
  file.read_as_f32("z.weight", values);
  CHECK(std::memcmp(values.data(), matrix.data(), 6 * sizeof(float)) == 0);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a disk that fills while a file is written leaves the old one and no temporary") {
  const TemporaryFolder folder;
  const auto path = folder.write("weights.safetensors", "what stood there");
  const std::vector<float> values(1 << 16);
  const std::vector<runtime::SafetensorsF32> tensors = {{"w", {1 << 16}, values}};

  // A limit on file size stands in for a full disk: write() fails part of the way, with an error of its own.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string sentence;
  try {
    runtime::write_safetensors(path, tensors);
  } catch (const runtime::DeviceError& error) {
    sentence = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);

  CHECK(contains(sentence, path.string() + ": cannot be written"));
  CHECK(read(path) == "what stood there");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a folder that is not there is a sentence, for reading and for writing") {
  CHECK_THROWS_AS(runtime::write_safetensors("/nonexistent/w.safetensors", {}), runtime::DeviceError);
  CHECK_THROWS_AS(Safetensors::open("/nonexistent"), InputError);
  CHECK_THROWS_AS(Gguf::open("/nonexistent"), InputError);
  CHECK_THROWS_AS(Gguf::open("/"), InputError);
}

TEST_CASE("Weights that were read leave no copy of the file in memory") {
  const TemporaryFolder folder;
  constexpr std::size_t kRows = 64, kWidth = std::size_t{1} << 18;  // 64 MiB
  const std::vector<float> values(kRows * kWidth, 1.5f);
  const std::vector<std::int64_t> shape{kRows, kWidth};
  const std::filesystem::path path = folder.path() / "model.safetensors";
  runtime::write_safetensors(path, std::vector<runtime::SafetensorsF32>{{"w", shape, values}});
  const std::string header = gguf_header(1, 0) + gguf_tensor("w", {kWidth, kRows}, 0, 0);
  const std::filesystem::path gguf = folder.write("model.gguf", padded(header, 4 * values.size()));

  std::vector<float> out(values.size());
  const auto grows_by = [&](const auto& file) {
    const std::int64_t before = runtime::resident_memory().value;
    file.read_as_f32("w", out);
    return runtime::resident_memory().value - before;
  };
  constexpr std::int64_t kLittle = std::int64_t{4} << 20;
  const Safetensors first = Safetensors::open(path);
  CHECK(grows_by(first) < kLittle);
  CHECK(out == values);
  const Gguf second = Gguf::open(gguf);
  CHECK(grows_by(second) < kLittle);
  CHECK(out == std::vector<float>(values.size(), 0.0f));
  first.read_as_f32("w", out);  // and once more
  CHECK(out == values);
}

TEST_CASE("shards are opened as one, through their index or their folder") {
  const TemporaryFolder folder;
  const std::vector<float> one = {1.0f};
  const std::vector<float> two = {2.0f};
  const auto first = std::vector<runtime::SafetensorsF32>{{"a", {1}, one}};
  const auto second = std::vector<runtime::SafetensorsF32>{{"b", {1}, two}};
  runtime::write_safetensors(folder.path() / "1.safetensors", first);
  runtime::write_safetensors(folder.path() / "2.safetensors", second);
  const auto index = [&](const std::string& map) {
    return folder.write("model.safetensors.index.json", R"({"weight_map": )" + map + "}");
  };
  index(R"({"a": "1.safetensors", "b": "2.safetensors"})");
  const Safetensors file = Safetensors::open(folder.path());
  std::vector<float> value(1);
  file.read_as_f32("b", value);
  CHECK(value == two);

  CHECK(
      contains(refusal<Safetensors>(index(R"({"a": "2.safetensors"})")), "names 'a', which no shard holds"));
  CHECK(contains(refusal<Safetensors>(index(R"({"a": "3.safetensors"})")),
                 "names '3.safetensors', which is no file"));
  CHECK(contains(refusal<Safetensors>(index(R"({"a": "../1.safetensors"})")), "in the same folder"));
  CHECK(contains(refusal<Safetensors>(index("[]")), "must have an object 'weight_map'"));
  runtime::write_safetensors(folder.path() / "2.safetensors", first);
  CHECK(contains(refusal<Safetensors>(index(R"({"a": "1.safetensors", "b": "2.safetensors"})")),
                 "'a' is in two shards"));
}

TEST_CASE("a safetensors header that lies is refused with the file and the tensor") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& header, std::size_t data_bytes = 8) {
    const auto path = folder.write("x.safetensors", safetensors(header, data_bytes));
    const std::string sentence = refusal<Safetensors>(path);
    CHECK((sentence.empty() || sentence.starts_with(path.string())));
    return sentence;
  };
  REQUIRE(refused(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})").empty());

  const std::string whole = R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  CHECK(contains(refused(R"({"w": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}})"),
                 "'w' has dtype I64; weights must be F32, F16 or BF16"));
  CHECK(contains(refused("{\"w\": {" + whole + ", \"w\": {" + whole + "}"), "'w' is defined twice"));
  CHECK(contains(refused(R"({"w": {"dtype": "Q9", "shape": [2], "data_offsets": [0, 8]}})"),
                 "'w' has dtype \"Q9\""));
  CHECK(contains(refused(R"({"w": {"dtype": 1, "shape": [2], "data_offsets": [0, 8]}})"), "has dtype 1"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})"),
                 "needs 12 bytes"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})"),
                 "shape must be"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}})"),
                 "shape must be"));
  CHECK(contains(
      refused(R"({"w": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 8]}})"),
      "more bytes than 64 bits"));
  CHECK(
      contains(refused(R"({"w": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 8]}})"),
               "shape must be"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})"),
                 "must lie within"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})"),
                 "must lie within"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0]}})"), "must be two"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [2]}})"),
                 "must have dtype, shape and data_offsets"));
  CHECK(contains(refused(R"({"w": 3})"), "must have dtype, shape and data_offsets"));
  CHECK(
      contains(refused(R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})"), "leaves a hole"));
  CHECK(contains(refused(R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})"),
                 "belong to none"));
  CHECK(contains(refused(R"({"v": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                             "w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})"),
                 "overlaps"));
  CHECK(contains(refused(R"({"__metadata__": {"a": 1}})", 0), "__metadata__['a'] must be a string"));
  CHECK(contains(refused("[]", 0), "must be a JSON object"));
  CHECK(contains(refused("{\"w\": \"\xff\"}", 0), "is not valid JSON"));
  CHECK(contains(refused(std::string(100'000, '['), 0), "is nested too deeply"));

  const auto length_lies = folder.write("x.safetensors", raw<std::uint64_t>(~std::uint64_t{0}) + "{}");
  CHECK(contains(refusal<Safetensors>(length_lies), "header's length"));
}

TEST_CASE("a GGUF file that lies is refused with the file and the field") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content) {
    const auto path = folder.write("x.gguf", content);
    const std::string sentence = refusal<Gguf>(path);
    CHECK((sentence.empty() || sentence.starts_with(path.string())));
    return sentence;
  };
  const auto tensor = [](const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                         std::uint64_t offset) {
    return padded(gguf_header(1, 0) + gguf_tensor("w", dimensions, type, offset), 64);
  };
  constexpr std::uint32_t kF32 = 0, kQ4_0 = 2, kIq2Xxs = 16, kUint32 = 4, kString = 8, kArray = 9;
  REQUIRE(refused(tensor({4, 4}, kF32, 0)).empty());
  REQUIRE(refused(gguf_header(0, 0)).empty());
  REQUIRE(refused(gguf_header(0, 0, 2)).empty());

  CHECK(contains(refused("GGML" + gguf_header(0, 0).substr(4)), "bytes 1 to 4 must be GGUF"));
  CHECK(contains(refused(gguf_header(0, 0, 1)),
                 "bytes 5 to 8 give GGUF version 1; little-endian versions 2 and 3"));
  CHECK(
      contains(refused(gguf_header(0, 0, 0x03000000)), "little-endian versions 2 and 3"));  // a big-endian 3
  CHECK(contains(refused(gguf_header(~std::uint64_t{0}, 0)), "tensors, more than the file's"));
  CHECK(contains(refused(gguf_header(0, 1u << 30)), "metadata entries, more than the file's"));

  CHECK(contains(refused(tensor({4, 4}, kIq2Xxs, 0)), "'w' has type number 16; accepted are F32"));
  CHECK(contains(refused(tensor({4, 4}, kQ4_0, 0)), "rows of 4 elements; Q4_0 needs a multiple of 32"));
  CHECK(contains(refused(tensor({1, 1, 1, 1, 1}, kF32, 0)), "has 5 dimensions; at most 4"));
  CHECK(contains(refused(tensor({1u << 31, 1u << 31, 4}, kF32, 0)), "more elements than 64 bits"));
  CHECK(contains(refused(tensor({1u << 31, 1u << 30}, kF32, 0)), "more bytes than 64 bits"));
  CHECK(contains(refused(tensor({~std::uint64_t{0}}, kF32, 0)), "more elements than 64 bits"));
  CHECK(contains(refused(tensor({17}, kF32, 0)), "needs 68 bytes, of 64"));
  CHECK(contains(refused(tensor({1}, kF32, 96)), "is the file cut short?"));
  CHECK(contains(refused(tensor({1}, kF32, 4)), "must begin at a multiple of 32"));
  CHECK(contains(
      refused(
          padded(gguf_header(2, 0) + gguf_tensor("v", {16}, kF32, 0) + gguf_tensor("w", {4}, kF32, 32), 64)),
      "'w' at offset 32 overlaps"));
  CHECK(
      contains(refused(padded(
                   gguf_header(2, 0) + gguf_tensor("w", {8}, kF32, 0) + gguf_tensor("w", {8}, kF32, 32), 64)),
               "tensor 'w' is defined twice"));

  const auto entry = [](const std::string& value) { return gguf_header(0, 1) + gguf_text("key") + value; };
  CHECK(contains(refused(entry(raw<std::uint32_t>(13) + raw<std::uint64_t>(0))),
                 "'key' has value type 13; known are 0 to 12"));
  CHECK(contains(refused(entry(raw(kString) + raw(~std::uint64_t{0}))), "metadata 'key' needs"));
  CHECK(contains(refused(entry(raw(kArray) + raw(kString) + raw(~std::uint64_t{0}))),
                 "array elements, more than"));
  CHECK(contains(refused(entry(raw(kArray) + raw(kUint32) + raw(std::uint64_t{1} << 62))),
                 "array elements, more than"));
  std::string nested = raw(kArray);
  for (int depth = 0; depth < 100'000; ++depth) nested += raw(kArray) + raw<std::uint64_t>(1);
  CHECK(contains(refused(entry(nested)), "nests arrays more than 4 deep"));
  const std::string four = gguf_text("key") + raw(kUint32) + raw<std::uint32_t>(4);
  CHECK(contains(refused(gguf_header(0, 2) + four + four), "metadata 'key' is defined twice"));
  for (const std::uint32_t alignment : {0u, 4u, 12u}) {
    CHECK(
        contains(refused(gguf_header(0, 1) + gguf_text("general.alignment") + raw(kUint32) + raw(alignment)),
                 "general.alignment is " + std::to_string(alignment) + "; it must be a multiple of 8"));
  }
}

TEST_CASE("a file cut short at any byte is refused") {
  const TemporaryFolder folder;
  const std::string gguf = read(kData / "small.gguf");
  const std::string tensors = read(kData / "small.safetensors");
  // The last tensor of a GGUF file is padded; what lies in the padding may go.
  const Gguf whole = Gguf::open(kData / "small.gguf");
  const std::byte* end = nullptr;
  for (const auto& tensor : whole.tensors()) end = std::max(end, tensor.bytes.data() + tensor.bytes.size());
  const auto needed = static_cast<std::size_t>(reinterpret_cast<const char*>(end) -
                                               reinterpret_cast<const char*>(whole.at("F32").bytes.data())) +
                      gguf.find(std::string(reinterpret_cast<const char*>(whole.at("F32").bytes.data()), 60));

  for (std::size_t length = 0; length < needed; ++length) {
    if (refusal<Gguf>(folder.write("x.gguf", gguf.substr(0, length))).empty()) FAIL("accepted at " << length);
  }
  for (std::size_t length = 0; length < tensors.size(); ++length) {
    if (refusal<Safetensors>(folder.write("x.safetensors", tensors.substr(0, length))).empty()) {
      FAIL("accepted at " << length);
    }
  }
  SUCCEED();
}

TEST_CASE("a file with random bytes changed is read or refused, never anything else") {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  const std::array<std::string, 2> originals = {read(kData / "small.gguf"),
                                                read(kData / "small.safetensors")};
  int refused = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    std::string content = originals[static_cast<std::size_t>(round % 2)];
    // Mostly in the header, where it matters.
    const std::size_t span = round % 8 < 6 ? std::min<std::size_t>(content.size(), 1200) : content.size();
    for (std::uint32_t i = 0; i <= random() % 4; ++i) {
      // Extreme values as often as any: 0, 1, the sign bit, all ones.
      constexpr std::array<char, 4> kExtremes = {0, 1, '\x80', '\xff'};
      content[random() % span] = random() % 2 ? kExtremes[random() % 4] : static_cast<char>(random());
    }
    const auto path = folder.write("x", content);
    const std::string sentence = round % 2 == 0 ? refusal<Gguf>(path) : refusal<Safetensors>(path);
    refused += sentence.empty() ? 0 : 1;
    if (sentence.empty()) continue;
    if (!sentence.starts_with(path.string()) || contains(sentence, "\n") || sentence.size() > 500)
      FAIL(sentence);
  }
  CHECK(refused > kRounds / 10);
  CHECK(refused < kRounds);
}
