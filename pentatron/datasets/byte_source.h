// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pentatron::datasets {

// A stream of bytes from a file, whatever it is packed with. Not safe from several threads at once.
// Errors name the file: kIo when it cannot be read, kData when its compressed data are damaged or
// end early.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // At most `into.size()` bytes; 0 only at the end. `into` may not be empty.
  [[nodiscard]] virtual std::size_t read(std::span<char> into) = 0;
  // Passes over the next `count` bytes; kData when there are fewer.
  virtual void skip(std::uint64_t count);
  // Bytes of the file itself (compressed ones) used so far.
  [[nodiscard]] virtual std::uint64_t file_bytes() const = 0;
  [[nodiscard]] virtual const std::string& name() const = 0;

 protected:
  ByteSource() = default;
};

// Opens a file, or standard input for "-". Plain, gzip, Zstandard, bzip2 and xz data are told apart
// by their first bytes; several compressed streams one after the other are one. Refused with kData:
// a name that promises another packing than the content has, UTF-16, and archives (zip, tar, ...)
// by name. Decompression keeps to 256 MiB of memory (xz, Zstandard windows up to 128 MiB).
[[nodiscard]] std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

// The endings of packed files that open_byte_source reads: ".gz", ".zst", ".bz2", ".xz".
[[nodiscard]] std::span<const std::string_view> compressed_endings();

}  // namespace pentatron::datasets
