// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/file.h"

// NumPy's .npy format, version 1.0: magic, u16 header length, a Python dict literal padded with
// spaces to a multiple of 64 bytes, row-major data. Written byte for byte as NumPy writes it.
namespace pentatron {

enum class NpyType { kI2, kI4, kI8, kU2, kU4, kF4, kF8 };

[[nodiscard]] std::size_t npy_item_bytes(NpyType type);
// The descr text: "<i4".
[[nodiscard]] std::string_view npy_descr(NpyType type);

template <typename T>
[[nodiscard]] constexpr NpyType npy_type_of() {
  if constexpr (std::same_as<T, std::int16_t>) return NpyType::kI2;
  if constexpr (std::same_as<T, std::int32_t>) return NpyType::kI4;
  if constexpr (std::same_as<T, std::int64_t>) return NpyType::kI8;
  if constexpr (std::same_as<T, std::uint16_t>) return NpyType::kU2;
  if constexpr (std::same_as<T, std::uint32_t>) return NpyType::kU4;
  if constexpr (std::same_as<T, float>) return NpyType::kF4;
  if constexpr (std::same_as<T, double>) return NpyType::kF8;
}

struct NpyHeader {
  NpyType type = NpyType::kI4;
  std::vector<std::int64_t> shape;  // empty: one value
  std::uint64_t data_offset = 0;    // bytes from the start of the file
  std::uint64_t num_values = 0;     // product of the shape
};

// Reads and checks a whole file's bytes: version 1.0 or 2.0, a supported little-endian dtype, row
// order, at most 32 dimensions, checked products, file size exactly header plus data. Errors:
// ErrorKind::kData.
[[nodiscard]] NpyHeader parse_npy(std::span<const std::byte> file_bytes,
                                  std::string_view file_name);

// Magic, length and padded dict, as NumPy writes them. A shape that is negative or too large:
// kInternal.
[[nodiscard]] std::string make_npy_header(NpyType type, std::span<const std::int64_t> shape);

// A mapped .npy file, validated when opened (kIo, kData).
class MappedNpy final {
 public:
  explicit MappedNpy(const std::filesystem::path& path);
  [[nodiscard]] const NpyHeader& header() const { return header_; }
  // All values in row order; another type than the file's: kData error naming both.
  template <typename T>
  [[nodiscard]] std::span<const T> values() const {
    return {static_cast<const T*>(data(npy_type_of<T>())), header_.num_values};
  }

 private:
  [[nodiscard]] const void* data(NpyType wanted) const;
  MappedFile map_;
  NpyHeader header_;
};

// Writes atomically (kIo). `bytes` must be exactly the shape's values, row-major: else kInternal.
void write_npy_bytes(const std::filesystem::path& path, NpyType type,
                     std::span<const std::int64_t> shape, std::span<const std::byte> bytes);

template <typename T>
void write_npy(const std::filesystem::path& path, std::span<const T> values,
               std::span<const std::int64_t> shape) {
  write_npy_bytes(path, npy_type_of<T>(), shape, std::as_bytes(values));
}
// One dimension.
template <typename T>
void write_npy(const std::filesystem::path& path, std::span<const T> values) {
  const std::int64_t size = static_cast<std::int64_t>(values.size());
  write_npy(path, values, std::span<const std::int64_t>(&size, 1));
}

}  // namespace pentatron
