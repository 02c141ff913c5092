// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "pentatron/datasets/corpus.h"
#include "pentatron/datasets/token_dtype.h"

namespace pentatron::datasets {

class IndexFile;

struct IndexHeader {
  TokenDtype dtype = TokenDtype::kUint16;
  std::int64_t num_sequences = 0;
  std::int64_t num_document_entries = 0;  // documents + 1
  bool has_modes = false;
};

// Bytes before the first table of an `.idx` file.
inline constexpr std::size_t kIndexHeaderBytes = 34;

// Checks a whole `.idx` image against itself and against the size of its `.bin` (bytes): magic,
// version, dtype, counts against the size with checked arithmetic, lengths not negative, every
// offset the sum of the lengths before it, the document index (first 0, never falling, last =
// sequences). Allocates nothing. `name` stands in the messages, which give the field, its byte
// offset, the expected and the found value. Errors: ErrorKind::kData.
[[nodiscard]] IndexHeader validate_index(std::span<const std::byte> index, std::uint64_t bin_size,
                                         std::string_view name);

[[nodiscard]] std::filesystem::path index_path(const std::string& prefix);
[[nodiscard]] std::filesystem::path bin_path(const std::string& prefix);
// The prefix of the corpus that a word names: PREFIX, PREFIX.bin or PREFIX.idx.
[[nodiscard]] std::string corpus_prefix(const std::string& word);

struct IndexedDatasetOptions {
  bool mmap_bin_files = true;  // --no-mmap-bin-files: read the .bin with pread instead
};

// Read access to a corpus of tokens in Megatron's layout: `PREFIX.bin` holds the bare tokens,
// `PREFIX.idx` lengths, byte offsets and the document index. Both files are checked at open;
// afterwards all methods are const and safe from any number of threads. PREFIX may be an address
// (http://...): the index is then copied at open, and tokens come by range requests.
class IndexedDataset final : public Corpus {
 public:
  // Errors: ErrorKind::kIo when a file cannot be opened, kData when one is damaged, kUnsupported
  // for float tokens.
  explicit IndexedDataset(std::string prefix, IndexedDatasetOptions options = {});
  ~IndexedDataset() override;

  [[nodiscard]] const std::string& name() const override { return prefix_; }
  [[nodiscard]] TokenDtype dtype() const { return header_.dtype; }
  [[nodiscard]] std::int64_t num_sequences() const override { return header_.num_sequences; }
  [[nodiscard]] std::int64_t num_documents() const { return header_.num_document_entries - 1; }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }

  [[nodiscard]] std::int32_t sequence_length(std::int64_t sequence) const override;
  // First and one-past-last sequence of a document; one that is not there: kInternal.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> document_range(std::int64_t document) const;

  [[nodiscard]] std::int64_t document_of(std::int64_t sequence) const override;

  // Whether each sequence has a mode (multimodal corpora), and which; one that is not there:
  // kInternal.
  [[nodiscard]] bool has_modes() const { return header_.has_modes; }
  [[nodiscard]] std::int8_t mode(std::int64_t sequence) const;

  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override;
  // SHA-256 of the `.idx` file and the size of the `.bin` file: reads the index, not the tokens;
  // computed once.
  [[nodiscard]] std::string identity() const override;
  // Of the whole `.idx` file and the size of the `.bin` file; computed once.
  [[nodiscard]] std::uint32_t layout_checksum() const override;
  [[nodiscard]] const std::byte* length_table() const override;
  // Of the `.bin` file. kIo: it can no longer be read.
  [[nodiscard]] std::string content(ContentHash how) const override;

 private:
  class Bin;
  class MappedBin;
  class FileBin;
  class RemoteBin;

  std::string prefix_;
  IndexHeader header_;
  std::int64_t num_tokens_ = 0;
  std::unique_ptr<IndexFile> index_;
  std::unique_ptr<Bin> bin_;
  mutable std::once_flag identity_once_;
  mutable std::string identity_;
  mutable std::once_flag checksum_once_;
  mutable std::uint32_t checksum_ = 0;
};

}  // namespace pentatron::datasets
