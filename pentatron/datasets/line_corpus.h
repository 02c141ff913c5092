// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/file.h"
#include "pentatron/datasets/corpus.h"

namespace pentatron::datasets {

// The lines of a text file that are not blank, as sequences of bytes; the file is mapped.
class LineCorpus final : public Corpus {
 public:
  static constexpr std::int64_t kMaxLineBytes = 256LL << 20;

  // kIo: it cannot be read; kData: a line of more than kMaxLineBytes, or none that is not blank.
  explicit LineCorpus(std::string path);

  [[nodiscard]] const std::string& name() const override { return path_; }
  [[nodiscard]] std::int64_t num_sequences() const override {
    return static_cast<std::int64_t>(begins_.size());
  }
  [[nodiscard]] std::int32_t sequence_length(std::int64_t sequence) const override;
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  // Of where the lines stand.
  [[nodiscard]] std::string identity() const override;
  [[nodiscard]] std::string content(ContentHash how) const override;

  // Without its line feed; valid as long as the corpus.
  [[nodiscard]] std::string_view line(std::int64_t i) const;
  // "FILE:12", counting blank lines, for messages.
  [[nodiscard]] std::string place(std::int64_t i) const;

 private:
  [[nodiscard]] std::string_view text() const;

  std::string path_;
  MappedFile file_;
  std::vector<std::int64_t> begins_;
  std::vector<std::int64_t> blanks_;  // of each blank line: lines before it that are not
};

}  // namespace pentatron::datasets
