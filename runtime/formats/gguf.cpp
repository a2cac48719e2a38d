#include "runtime/formats/gguf.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/formats/excerpt.h"
#include "runtime/formats/float_formats.h"

namespace runtime {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint32_t kMaxDimensions = 4;  // GGML_MAX_DIMS
constexpr int kMaxArrayDepth = 4;            // bounds the recursion; files in use have depth 1

// The fewest bytes of an entry in the file; they bound a count before anything is allocated for it.
constexpr std::uint64_t kMinMetadataBytes = 8 + 4 + 1;    // key length, type, a one-byte value
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, dimensions, type, offset

// Bytes of a scalar; 0 for string and array.
std::uint64_t scalar_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::uint8:
    case GgufValueType::int8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::uint16:
    case GgufValueType::int16:
      return 2;
    case GgufValueType::uint32:
    case GgufValueType::int32:
    case GgufValueType::float32:
      return 4;
    case GgufValueType::uint64:
    case GgufValueType::int64:
    case GgufValueType::float64:
      return 8;
    case GgufValueType::string:
    case GgufValueType::array:
      return 0;
  }
  return 0;
}

GgufValue load_scalar(GgufValueType type, const std::byte* from) {
  switch (type) {
    case GgufValueType::uint8:
      return std::uint64_t{load_unaligned<std::uint8_t>(from)};
    case GgufValueType::int8:
      return std::int64_t{load_unaligned<std::int8_t>(from)};
    case GgufValueType::uint16:
      return std::uint64_t{load_unaligned<std::uint16_t>(from)};
    case GgufValueType::int16:
      return std::int64_t{load_unaligned<std::int16_t>(from)};
    case GgufValueType::uint32:
      return std::uint64_t{load_unaligned<std::uint32_t>(from)};
    case GgufValueType::int32:
      return std::int64_t{load_unaligned<std::int32_t>(from)};
    case GgufValueType::float32:
      return double{load_unaligned<float>(from)};
    case GgufValueType::boolean:
      return load_unaligned<std::uint8_t>(from) != 0;
    case GgufValueType::uint64:
      return load_unaligned<std::uint64_t>(from);
    case GgufValueType::int64:
      return load_unaligned<std::int64_t>(from);
    case GgufValueType::float64:
      return load_unaligned<double>(from);
    case GgufValueType::string:
    case GgufValueType::array:
      break;
  }
  return false;
}

// Reads forward through the header; every read is checked against the end of the file. `subject` names what
// is being read, for the message.
class HeaderReader {
 public:
  HeaderReader(std::string file, std::span<const std::byte> bytes) : file_(std::move(file)), bytes_(bytes) {}

  void set_subject(std::string subject) { subject_ = std::move(subject); }
  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }

  InputError error(const std::string& why) const { return InputError(file_ + ": " + subject_ + " " + why); }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > remaining()) {
      throw error("needs " + std::to_string(count) + " bytes at position " + std::to_string(position_) +
                  ", but the file ends after " + std::to_string(remaining()) + "; is it cut short?");
    }
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  template <typename T>
  T scalar() {
    return load_unaligned<T>(take(sizeof(T)).data());
  }
  std::string_view text() {
    const auto characters = take(scalar<std::uint64_t>());
    return {reinterpret_cast<const char*>(characters.data()), characters.size()};
  }
  // Reads the number of entries that take at least `bytes_each` bytes each.
  std::uint64_t count(std::uint64_t bytes_each, const char* of_what) {
    const auto number = scalar<std::uint64_t>();
    if (number > remaining() / bytes_each) {
      throw error("gives " + std::to_string(number) + " " + of_what + ", more than the file's " +
                  std::to_string(remaining()) + " bytes behind byte " + std::to_string(position_) +
                  " can hold");
    }
    return number;
  }
  GgufValueType value_type() {
    const auto number = scalar<std::uint32_t>();
    if (number > static_cast<std::uint32_t>(GgufValueType::float64)) {
      throw error("has value type " + std::to_string(number) + "; known are 0 to 12");
    }
    return static_cast<GgufValueType>(number);
  }
  GgufArray array(int depth = 1) {
    if (depth > kMaxArrayDepth)
      throw error("nests arrays more than " + std::to_string(kMaxArrayDepth) + " deep");
    const GgufValueType type = value_type();
    const std::uint64_t each = scalar_bytes(type);
    const std::uint64_t minimum = each > 0 ? each : type == GgufValueType::string ? 8 : 12;
    const std::uint64_t number = count(minimum, "array elements");
    const std::uint64_t begin = position_;
    if (each > 0) {
      take(number * each);
    } else {
      for (std::uint64_t i = 0; i < number; ++i) {
        if (type == GgufValueType::string) {
          text();
        } else {
          array(depth + 1);
        }
      }
    }
    return {type, number, bytes_.subspan(begin, position_ - begin)};
  }
  GgufValue value() {
    const GgufValueType type = value_type();
    if (type == GgufValueType::string) return text();
    if (type == GgufValueType::array) return array();
    return load_scalar(type, take(scalar_bytes(type)).data());
  }

 private:
  std::string file_;
  std::span<const std::byte> bytes_;
  std::string subject_ = "the header";
  std::uint64_t position_ = 0;
};

struct PlacedTensor {
  GgufTensor tensor;
  std::uint64_t offset;  // from the start of the data section
  std::uint64_t bytes;
};

PlacedTensor read_tensor_info(HeaderReader& reader) {
  PlacedTensor placed{};
  GgufTensor& tensor = placed.tensor;
  reader.set_subject("a tensor's description");
  tensor.name = std::string(reader.text());
  reader.set_subject("tensor '" + excerpt(tensor.name) + "'");
  const auto dimensions = reader.scalar<std::uint32_t>();
  if (dimensions > kMaxDimensions) {
    throw reader.error("has " + std::to_string(dimensions) + " dimensions; at most 4 are accepted");
  }
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto dimension = reader.scalar<std::uint64_t>();
    if (!std::in_range<std::int64_t>(dimension) ||
        __builtin_mul_overflow(elements, static_cast<std::int64_t>(dimension), &elements)) {
      throw reader.error("has more elements than 64 bits can count");
    }
    tensor.shape.push_back(static_cast<std::int64_t>(dimension));
  }
  const auto type_number = reader.scalar<std::uint32_t>();
  const GgmlTypeInfo* type = find_ggml_type(type_number);
  if (type == nullptr) {
    throw reader.error("has type number " + std::to_string(type_number) + "; accepted are " +
                       ggml_type_names());
  }
  tensor.type = type->type;
  const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
  if (row % type->elements != 0) {
    throw reader.error("has rows of " + std::to_string(row) + " elements; " + std::string(type->name) +
                       " needs a multiple of " + std::to_string(type->elements));
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / type->elements, type->bytes, &bytes)) {
    throw reader.error("has more bytes than 64 bits can count");
  }
  placed.bytes = static_cast<std::uint64_t>(bytes);
  placed.offset = reader.scalar<std::uint64_t>();
  std::ranges::reverse(tensor.shape);
  return placed;
}

// Gives each tensor its bytes, and checks that they lie in the data section, aligned and apart from one
// another.
void place(const std::string& file, std::vector<PlacedTensor>& tensors, std::span<const std::byte> data,
           std::uint64_t alignment) {
  std::ranges::sort(tensors, {}, &PlacedTensor::offset);
  std::uint64_t end = 0;
  for (PlacedTensor& placed : tensors) {
    const std::string subject =
        file + ": tensor '" + excerpt(placed.tensor.name) + "' at offset " + std::to_string(placed.offset);
    if (placed.offset % alignment != 0) {
      throw InputError(subject + " must begin at a multiple of " + std::to_string(alignment));
    }
    if (placed.offset > data.size() || placed.bytes > data.size() - placed.offset) {
      throw InputError(subject + " needs " + std::to_string(placed.bytes) + " bytes, of " +
                       std::to_string(data.size()) + " in the file's data section; is the file cut short?");
    }
    if (placed.bytes > 0 && placed.offset < end) throw InputError(subject + " overlaps the tensor before it");
    end = std::max(end, placed.offset + placed.bytes);
    placed.tensor.bytes = data.subspan(placed.offset, placed.bytes);
  }
}

std::uint64_t alignment_of(const Gguf& gguf) {
  constexpr std::string_view kKey = "general.alignment";
  if (!gguf.has(kKey)) return kDefaultAlignment;
  const std::int64_t alignment = gguf.integer(kKey);
  if (alignment < 8 || alignment % 8 != 0 || alignment > std::numeric_limits<std::uint32_t>::max()) {
    throw InputError(gguf.path().string() + ": general.alignment is " + std::to_string(alignment) +
                     "; it must be a multiple of 8");
  }
  return static_cast<std::uint64_t>(alignment);
}

}  // namespace

std::int64_t GgufTensor::element_count() const {
  std::int64_t count = 1;
  // From the innermost dimension on: open() checked in this order that the product fits.
  for (auto dimension = shape.rbegin(); dimension != shape.rend(); ++dimension) count *= *dimension;
  return count;
}

Gguf Gguf::open(const std::filesystem::path& path) {
  Gguf result(MappedFile::open(path));
  const std::string file = path.string();
  const std::span<const std::byte> bytes = result.file_.bytes();
  HeaderReader reader(file, bytes);

  if (reader.scalar<std::uint32_t>() != kMagic) throw InputError(file + ": bytes 1 to 4 must be GGUF");
  result.version_ = reader.scalar<std::uint32_t>();
  if (result.version_ != 2 && result.version_ != 3) {
    throw InputError(file + ": bytes 5 to 8 give GGUF version " + std::to_string(result.version_) +
                     "; little-endian versions 2 and 3 are accepted");
  }
  const std::uint64_t tensor_count = reader.count(kMinTensorBytes, "tensors");
  const std::uint64_t metadata_count = reader.count(kMinMetadataBytes, "metadata entries");

  for (std::uint64_t i = 0; i < metadata_count; ++i) {
    reader.set_subject("metadata entry " + std::to_string(i));
    const std::string key(reader.text());
    reader.set_subject("metadata '" + excerpt(key) + "'");
    if (!result.metadata_.emplace(key, reader.value()).second) throw reader.error("is defined twice");
  }

  std::vector<PlacedTensor> placed;
  placed.reserve(tensor_count);
  for (std::uint64_t i = 0; i < tensor_count; ++i) placed.push_back(read_tensor_info(reader));

  const std::uint64_t alignment = alignment_of(result);
  const std::uint64_t padding = (alignment - reader.position() % alignment) % alignment;
  // A file without tensors may end where its header does.
  place(file, placed, bytes.subspan(reader.position() + std::min(padding, reader.remaining())), alignment);

  for (PlacedTensor& tensor : placed) result.tensors_.push_back(std::move(tensor.tensor));
  std::ranges::sort(result.tensors_, {}, &GgufTensor::name);
  const auto twice = std::ranges::adjacent_find(result.tensors_, {}, &GgufTensor::name);
  if (twice != result.tensors_.end())
    throw InputError(file + ": tensor '" + excerpt(twice->name) + "' is defined twice");
  return result;
}

const GgufValue& Gguf::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end())
    throw InputError(path().string() + ": has no metadata '" + std::string(key) + "'");
  return found->second;
}

InputError Gguf::wrong_type(std::string_view key, std::string_view expected) const {
  return InputError(path().string() + ": metadata '" + std::string(key) + "' must be " +
                    std::string(expected));
}

namespace {

std::optional<std::int64_t> as_integer(const GgufValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  const auto* number = std::get_if<std::uint64_t>(&value);
  if (number != nullptr && std::in_range<std::int64_t>(*number)) return static_cast<std::int64_t>(*number);
  return std::nullopt;
}

std::optional<double> as_number(const GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  return std::nullopt;
}

// The elements of a scalar array, passed through `convert`; nothing when it is no such array or when one
// element does not convert.
template <typename T>
std::optional<std::vector<T>> elements(const GgufValue& value,
                                       std::optional<T> (*convert)(const GgufValue&)) {
  const auto* array = std::get_if<GgufArray>(&value);
  if (array == nullptr) return std::nullopt;
  const std::uint64_t each = scalar_bytes(array->element_type);
  if (each == 0) return std::nullopt;
  std::vector<T> result;
  result.reserve(array->count);
  for (std::uint64_t i = 0; i < array->count; ++i) {
    const auto element = convert(load_scalar(array->element_type, array->bytes.data() + i * each));
    if (!element) return std::nullopt;
    result.push_back(*element);
  }
  return result;
}

}  // namespace

std::string_view Gguf::string(std::string_view key) const {
  if (const auto* text = std::get_if<std::string_view>(&value(key))) return *text;
  throw wrong_type(key, "a string");
}

std::int64_t Gguf::integer(std::string_view key) const {
  if (const auto number = as_integer(value(key))) return *number;
  throw wrong_type(key, "an integer");
}

double Gguf::number(std::string_view key) const {
  if (const auto number = as_number(value(key))) return *number;
  throw wrong_type(key, "a number");
}

bool Gguf::boolean(std::string_view key) const {
  if (const auto* flag = std::get_if<bool>(&value(key))) return *flag;
  throw wrong_type(key, "a boolean");
}

std::vector<std::string_view> Gguf::strings(std::string_view key) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || array->element_type != GgufValueType::string)
    throw wrong_type(key, "an array of strings");
  std::vector<std::string_view> result;
  result.reserve(array->count);
  HeaderReader reader(path().string(), array->bytes);
  for (std::uint64_t i = 0; i < array->count; ++i) result.push_back(reader.text());
  return result;
}

std::vector<std::int64_t> Gguf::integers(std::string_view key) const {
  if (auto result = elements<std::int64_t>(value(key), as_integer)) return *std::move(result);
  throw wrong_type(key, "an array of integers");
}

std::vector<double> Gguf::numbers(std::string_view key) const {
  if (auto result = elements<double>(value(key), as_number)) return *std::move(result);
  throw wrong_type(key, "an array of numbers");
}

const GgufTensor* Gguf::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &GgufTensor::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const GgufTensor& Gguf::at(std::string_view name) const {
  if (const GgufTensor* tensor = find(name)) return *tensor;
  throw InputError(path().string() + ": has no tensor '" + excerpt(name) + "'");
}

void Gguf::read_as_f32(std::string_view name, std::span<float> out) const {
  const GgufTensor& tensor = at(name);
  if (static_cast<std::uint64_t>(tensor.element_count()) != out.size()) {
    throw InputError(path().string() + ": tensor '" + tensor.name + "' has " +
                     std::to_string(tensor.element_count()) + " elements, expected " +
                     std::to_string(out.size()));
  }
  dequantize(tensor.type, tensor.bytes, out);
  give_back(tensor.bytes);
}

}  // namespace runtime
