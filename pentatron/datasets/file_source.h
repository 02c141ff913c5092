// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/byte_source.h"

namespace pentatron::datasets {

// The bytes of a file or of standard input as they are.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::string& path);  // "-": standard input
  ~FileSource() override;

  // The first bytes of the file, at most `count`, without using them up; before the first read.
  [[nodiscard]] std::string_view peek(std::size_t count);

  [[nodiscard]] std::size_t read(std::span<char> into) override;
  void skip(std::uint64_t count) override;
  [[nodiscard]] std::uint64_t file_bytes() const override { return used_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  std::size_t read_file(std::span<char> into);

  std::string name_;
  int fd_ = -1;
  bool seekable_ = false;
  std::vector<char> peeked_;
  std::size_t peeked_used_ = 0;
  std::uint64_t used_ = 0;
};

}  // namespace pentatron::datasets
