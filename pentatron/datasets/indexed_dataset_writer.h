// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pentatron/base/append_file.h"
#include "pentatron/datasets/integer_log.h"
#include "pentatron/datasets/token_dtype.h"

namespace pentatron {
class AtomicFile;
}

namespace pentatron::datasets {

// How far a corpus has been written; what an interrupted run is continued from.
struct WrittenCounts {
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

// Gives both files of a corpus their final names, the old index away first and the new one last:
// Ctrl-C finds the old pair or the new one, and an old index never meets new tokens. kIo: neither
// has its name.
void show_together(AtomicFile& bin, AtomicFile& index, const std::string& prefix);

// Writes a corpus in Megatron's layout. Tokens stream to disk, and so do the lengths of more than a
// few hundred thousand sequences: memory does not grow with the corpus. Both files are invisible
// until finish() shows the `.bin`, then the `.idx`, so an index never stands without its tokens
// (and a stop signal waits for both). Destroyed without finish(): nothing is left. Files that
// cannot be written: kIo.
class IndexedDatasetWriter final {
 public:
  // `overwrite` false: ErrorKind::kConfig when PREFIX.bin or PREFIX.idx exists. The folder of the
  // prefix is made when missing. `dtype`: uint16 or int32, else kInternal.
  IndexedDatasetWriter(std::string prefix, TokenDtype dtype, bool overwrite = false);
  // The same, but what is unfinished stands in the existing folder `unfinished` (on the file system
  // of the prefix) under NAME.tokens, NAME.lengths, NAME.documents, and stays there without
  // finish(). Goes on after `counts`, as an earlier run's checkpoint() returned them; files that
  // hold less: kData.
  IndexedDatasetWriter(std::string prefix, TokenDtype dtype, bool overwrite,
                       const std::filesystem::path& unfinished, const WrittenCounts& counts);
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  // ErrorKind::kConfig when PREFIX.bin or PREFIX.idx exists.
  static void refuse_existing(const std::string& prefix);

  // One sequence (a sentence, or a whole document). A token that the dtype cannot hold:
  // ErrorKind::kData.
  void add_sequence(std::span<const std::int32_t> tokens);
  // Closes the document of all sequences added since the last call (none: an empty document).
  void end_document();
  // Brings everything to the disk. Only with an unfinished folder and between documents: kInternal.
  [[nodiscard]] WrittenCounts checkpoint();
  // All that finish() does but the final names.
  void seal();
  // Every sequence must belong to a closed document. May be called once. Else kInternal.
  void finish();
  // After finish(): takes the final names away again; of an unfinished folder the tokens go back.
  void hide();

  [[nodiscard]] std::int64_t num_sequences() const { return lengths_.size(); }
  [[nodiscard]] std::int64_t num_documents() const { return document_sequences_.size(); }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }

 private:
  void prepare_output(bool overwrite) const;
  void flush();
  void write_index(AtomicFile& file) const;

  std::string prefix_;
  TokenDtype dtype_;
  std::unique_ptr<AtomicFile> bin_;        // or
  std::filesystem::path unfinished_path_;  // of the tokens
  std::optional<AppendFile> unfinished_;
  std::unique_ptr<AtomicFile> index_;  // once sealed
  bool finished_ = false;
  std::vector<std::byte> buffer_;
  IntegerLog lengths_;             // tokens of each sequence
  IntegerLog document_sequences_;  // sequences of each document
  std::int32_t open_sequences_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace pentatron::datasets
