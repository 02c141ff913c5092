// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pentatron/datasets/token_dtype.h"

namespace pentatron {
class AtomicFile;
}

namespace pentatron::datasets {

// Writes a corpus in Megatron's layout. Tokens stream to disk; 4 bytes a sequence and a document
// stay in memory. Both files are invisible until finish() shows the `.bin`, then the `.idx`, so an
// index never stands without its tokens (and a stop signal waits for both). Destroyed without
// finish(): nothing is left. Files that cannot be written: kIo.
class IndexedDatasetWriter final {
 public:
  // `overwrite` false: ErrorKind::kConfig when PREFIX.bin or PREFIX.idx exists. The folder of the
  // prefix is made when missing. `dtype`: uint16 or int32, else kInternal.
  IndexedDatasetWriter(std::string prefix, TokenDtype dtype, bool overwrite = false);
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  // One sequence (a sentence, or a whole document). A token that the dtype cannot hold:
  // ErrorKind::kData.
  void add_sequence(std::span<const std::int32_t> tokens);
  // Closes the document of all sequences added since the last call (none: an empty document).
  void end_document();
  // Every sequence must belong to a closed document. May be called once. Else kInternal.
  void finish();

  [[nodiscard]] std::int64_t num_sequences() const {
    return static_cast<std::int64_t>(lengths_.size());
  }
  [[nodiscard]] std::int64_t num_documents() const {
    return static_cast<std::int64_t>(document_sequences_.size());
  }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }

 private:
  void flush();
  void write_index(AtomicFile& file) const;

  std::string prefix_;
  TokenDtype dtype_;
  std::unique_ptr<AtomicFile> bin_;
  std::vector<std::byte> buffer_;
  std::vector<std::int32_t> lengths_;             // tokens of each sequence
  std::vector<std::int32_t> document_sequences_;  // sequences of each document
  std::int32_t open_sequences_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace pentatron::datasets
