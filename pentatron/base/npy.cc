// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/npy.h"

#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <system_error>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron {
namespace {

static_assert(std::endian::native == std::endian::little, "dtypes are written as little-endian");

struct TypeInfo {
  std::string_view descr;
  std::size_t bytes;
};
constexpr std::array<TypeInfo, 7> kTypes = {
    {{"<i2", 2}, {"<i4", 4}, {"<i8", 8}, {"<u2", 2}, {"<u4", 4}, {"<f4", 4}, {"<f8", 8}}};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kVersionBytes = 2;
constexpr std::size_t kMaxRank = 32;
constexpr std::size_t kMaxHeaderBytes = 10'000;  // NumPy's own limit for a header it evaluates
constexpr std::size_t kAlignment = 64;

std::optional<std::uint64_t> checked_product(std::span<const std::int64_t> shape) {
  std::uint64_t product = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, static_cast<std::uint64_t>(size), &product)) {
      return std::nullopt;
    }
  }
  return product;
}

// Reads the one dict that a header may hold; no general Python.
class DictReader final {
 public:
  DictReader(std::string_view text, std::string_view file_name)
      : rest_(text), file_name_(file_name) {}

  void read(NpyHeader& header) {
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        header.type = type(quoted());
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        fortran_order_ = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = tuple();
        has_shape = true;
      } else {
        fail(fmt::format("unknown or repeated key {}", quoted_for_message(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!rest_.empty()) fail("text after the dict");
    if (!has_descr || !has_order || !has_shape) fail("a key is missing");
    if (fortran_order_ && header.shape.size() > 1) fail("column order is not supported");
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    PENTATRON_THROW(kData, "{}: damaged .npy header: {}", file_name_, what);
  }

  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }
  bool accept(char wanted) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("expected '{}'", wanted));
  }

  std::string_view quoted() {
    skip_spaces();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) fail("expected a string");
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) fail("a string does not end");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool boolean() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"}) {
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    }
    fail("fortran_order is neither True nor False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      std::int64_t size = 0;
      const auto [stop, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (code != std::errc() || size < 0) fail("shape holds something else than sizes");
      if (sizes.size() == kMaxRank) fail(fmt::format("more than {} dimensions", kMaxRank));
      sizes.push_back(size);
      rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
      if (!accept(',')) {
        // Without a comma Python reads (3) as a number.
        if (sizes.size() == 1) fail("shape is no tuple");
        expect(')');
        break;
      }
    }
    return sizes;
  }

  NpyType type(std::string_view descr) const {
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (kTypes[i].descr == descr) return static_cast<NpyType>(i);
    }
    fail(fmt::format("dtype {} is none of <i2 <i4 <i8 <u2 <u4 <f4 <f8", quoted_for_message(descr)));
  }

  std::string_view rest_;
  std::string_view file_name_;
  bool fortran_order_ = false;
};

}  // namespace

std::size_t npy_item_bytes(NpyType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::string_view npy_descr(NpyType type) { return kTypes[static_cast<std::size_t>(type)].descr; }

NpyHeader parse_npy(std::span<const std::byte> file_bytes, std::string_view file_name) {
  const std::string_view text(reinterpret_cast<const char*>(file_bytes.data()), file_bytes.size());
  const std::size_t prefix = kMagic.size() + kVersionBytes;
  PENTATRON_CHECK(text.size() >= prefix && text.starts_with(kMagic), kData,
                  "{}: no .npy file (its first bytes are not NumPy's)", file_name);
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t major = byte(kMagic.size());
  const std::uint8_t minor = byte(kMagic.size() + 1);
  PENTATRON_CHECK((major == 1 || major == 2) && minor == 0, kData,
                  "{}: .npy version {}.{}, expected 1.0 or 2.0", file_name, major, minor);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  PENTATRON_CHECK(text.size() >= prefix + length_bytes, kData, "{}: the .npy header is cut off",
                  file_name);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= static_cast<std::uint64_t>(byte(prefix + i)) << (8 * i);
  }
  const std::size_t start = prefix + length_bytes;
  PENTATRON_CHECK(length <= kMaxHeaderBytes && length <= text.size() - start, kData,
                  "{}: .npy header length {} is more than {} or than the {} bytes that follow",
                  file_name, length, kMaxHeaderBytes, text.size() - start);
  NpyHeader header;
  header.data_offset = start + length;
  DictReader(text.substr(start, length), file_name).read(header);
  const std::size_t item_bytes = npy_item_bytes(header.type);
  PENTATRON_CHECK(header.data_offset % item_bytes == 0, kData,
                  "{}: data at byte {} is not aligned to its items of {} bytes", file_name,
                  header.data_offset, item_bytes);
  const std::optional<std::uint64_t> values = checked_product(header.shape);
  const std::uint64_t data_bytes = file_bytes.size() - header.data_offset;
  PENTATRON_CHECK(values && data_bytes % item_bytes == 0 && *values == data_bytes / item_bytes,
                  kData, "{}: shape ({}) of {} does not fit the {} bytes of data", file_name,
                  fmt::join(header.shape, ", "), npy_descr(header.type), data_bytes);
  header.num_values = *values;
  return header;
}

std::string make_npy_header(NpyType type, std::span<const std::int64_t> shape) {
  PENTATRON_CHECK(shape.size() <= kMaxRank && checked_product(shape), kInternal,
                  ".npy: shape ({}) is negative or too large", fmt::join(shape, ", "));
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", npy_descr(type),
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  if (!shape.empty()) {
    // NumPy leaves room to overwrite the first size with one of up to 21 digits.
    constexpr std::size_t kGrowthDigits = 21;
    dict.append(kGrowthDigits - std::to_string(shape[0]).size(), ' ');
  }
  // Spaces, then a newline, so that the data begins at a multiple of 64; NumPy adds a whole 64
  // when nothing is missing.
  const std::size_t used = kMagic.size() + kVersionBytes + 2 + dict.size() + 1;
  dict.append(kAlignment - used % kAlignment, ' ');
  dict += '\n';
  std::string text(kMagic);
  text +=
      {'\x01', '\x00', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return text + dict;
}

MappedNpy::MappedNpy(const std::filesystem::path& path)
    : map_(path), header_(parse_npy(map_.bytes(), path.string())) {}

const void* MappedNpy::data(NpyType wanted) const {
  PENTATRON_CHECK(wanted == header_.type, kData, "{}: holds {}, expected {}", map_.path().string(),
                  npy_descr(header_.type), npy_descr(wanted));
  return map_.bytes().data() + header_.data_offset;
}

void write_npy_bytes(const std::filesystem::path& path, NpyType type,
                     std::span<const std::int64_t> shape, std::span<const std::byte> bytes) {
  const std::string header = make_npy_header(type, shape);
  const std::size_t item_bytes = npy_item_bytes(type);
  PENTATRON_CHECK(
      bytes.size() % item_bytes == 0 && checked_product(shape) == bytes.size() / item_bytes,
      kInternal, "{}: {} bytes are not shape ({}) of {}", path.string(), bytes.size(),
      fmt::join(shape, ", "), npy_descr(type));
  AtomicFile file(path);
  file.write(header);
  if (!bytes.empty()) file.write(bytes);
  file.commit();
}

}  // namespace pentatron
