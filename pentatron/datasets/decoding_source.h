// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/byte_source.h"

namespace pentatron::datasets {

// Unpacks another source: one class a format derives from it and decodes a piece at a time.
class DecodingSource : public ByteSource {
 public:
  [[nodiscard]] std::size_t read(std::span<char> into) final;
  [[nodiscard]] std::uint64_t file_bytes() const final { return packed_->file_bytes(); }
  [[nodiscard]] const std::string& name() const final { return packed_->name(); }

 protected:
  struct Step {
    std::size_t used = 0;
    std::size_t made = 0;
    bool stream_ended = false;  // what follows, if anything, is another stream
  };

  DecodingSource(std::unique_ptr<ByteSource> packed, std::string_view format);

  // Decodes some of `in` into `out`. Called again after stream_ended only if more input follows.
  virtual Step decode(std::span<const char> in, std::span<char> out) = 0;
  // kData: names the file, the format and the place.
  [[noreturn]] void fail(std::string_view why) const;

 private:
  std::unique_ptr<ByteSource> packed_;
  std::string_view format_;
  std::vector<char> buffer_;
  std::span<const char> in_;
  bool at_end_ = false;  // of the packed source
  bool between_streams_ = false;
};

[[nodiscard]] std::unique_ptr<ByteSource> make_gzip_source(std::unique_ptr<ByteSource> packed);
[[nodiscard]] std::unique_ptr<ByteSource> make_zstd_source(std::unique_ptr<ByteSource> packed);
[[nodiscard]] std::unique_ptr<ByteSource> make_bzip2_source(std::unique_ptr<ByteSource> packed);
[[nodiscard]] std::unique_ptr<ByteSource> make_xz_source(std::unique_ptr<ByteSource> packed);

}  // namespace pentatron::datasets
