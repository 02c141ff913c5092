// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/file.h"

// The safetensors format: u64 header length, JSON header, data. The reader enforces every rule of
// the format's audit: header length <= 100,000,000 and <= file size, first byte '{', UTF-8, no
// duplicate keys, string metadata, known dtypes, checked products, offsets that start at 0 and
// leave no hole or overlap, end equal to the file size. Errors: ErrorKind::kData.
namespace pentatron {

// dtype names as the format spells them: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL F8_E4M3 F8_E5M2
// U16 U32 U64. Nothing for another name.
[[nodiscard]] std::optional<std::size_t> safetensors_item_bytes(std::string_view dtype);

struct SafetensorsEntry {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // byte range in the data section
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // bytes from the start of the file
};

[[nodiscard]] SafetensorsHeader parse_safetensors(std::span<const std::byte> file_bytes,
                                                  std::string_view file_name);
// The header alone, without its length, of a file with so many bytes of data; data_offset is what
// it is there.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text,
                                                         std::uint64_t data_bytes,
                                                         std::string_view file_name);

// A mapped file, checked when opened (kIo, kData).
class SafetensorsFile final {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  // The bytes of one tensor; unknown name: kData error.
  [[nodiscard]] std::span<const std::byte> bytes(std::string_view name) const;
  [[nodiscard]] std::span<const std::byte> file_bytes() const { return map_.bytes(); }
  // Without the length before it, and with the padding behind it
  [[nodiscard]] std::string_view header_text() const;

 private:
  MappedFile map_;
  SafetensorsHeader header_;
};

// A tensor whose bytes come later.
struct SafetensorsShape {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

struct SafetensorsItem {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, length = product(shape) * item size
};

// Header text for tensors laid out in the given order (padded with spaces to 8 bytes), without the
// length word. A name twice, an unknown dtype or bytes that are not the shape's: kInternal; a
// header beyond the format's limit: kUnsupported.
[[nodiscard]] std::string plan_safetensors_header(
    std::span<const SafetensorsShape> tensors, const std::map<std::string, std::string>& metadata);
[[nodiscard]] std::string make_safetensors_header(
    std::span<const SafetensorsItem> items, const std::map<std::string, std::string>& metadata);

// Whether the reference library (Rust, 0.8) puts tensor `a` before `b` in a file: wider and other
// dtypes first, in the order F64 F32 BF16 F16 for weights, then by name. Unknown dtypes are last.
[[nodiscard]] bool before_in_safetensors(const SafetensorsShape& a, const SafetensorsShape& b);

// Writes the length word and the header; the bytes of the tensors follow in their order.
template <typename Sink>
void write_safetensors_header(const std::string& header, Sink&& sink) {
  const std::uint64_t length = header.size();
  sink(std::as_bytes(std::span<const std::uint64_t>(&length, 1)));
  sink(std::as_bytes(std::span<const char>(header.data(), header.size())));
}

// Writes through `sink(bytes)`, front to back; the caller owns atomicity and checksums.
template <typename Sink>
void write_safetensors(std::span<const SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata, Sink&& sink) {
  write_safetensors_header(make_safetensors_header(items, metadata), sink);
  for (const SafetensorsItem& item : items) sink(item.bytes);
}

}  // namespace pentatron
