// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pentatron/base/sha256.h"
#include "pentatron/datasets/content_hash.h"

namespace pentatron::datasets {

// Numbered sequences of tokens: all that the indices and the samples of a dataset read. Methods are
// const and safe from any number of threads.
class Corpus {
 public:
  Corpus() = default;
  virtual ~Corpus() = default;
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  // For messages: the prefix of the files, or what stands in for them.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::int64_t num_sequences() const = 0;
  // Tokens of a sequence. Another number than those of sequences: ErrorKind::kInternal.
  [[nodiscard]] virtual std::int32_t sequence_length(std::int64_t sequence) const = 0;
  // The document that a sequence belongs to; each is one of its own where nothing else is known.
  [[nodiscard]] virtual std::int64_t document_of(std::int64_t sequence) const { return sequence; }
  // Copies `out.size()` tokens of a sequence from token `offset` on. Past the sequence's end:
  // ErrorKind::kInternal.
  virtual void read(std::int64_t sequence, std::int64_t offset,
                    std::span<std::int64_t> out) const = 0;
  // A text that differs when the sequences differ, and never holds a path: part of what a resumed
  // run is compared by.
  [[nodiscard]] virtual std::string identity() const = 0;
  // Of the lengths of all sequences: what the order of samples depends on. Cheaper than identity(),
  // and no proof against intent.
  [[nodiscard]] virtual std::uint32_t layout_checksum() const {
    const std::string text = identity();
    return crc32c(std::as_bytes(std::span(text)));
  }
  // The lengths of all sequences as int32 in memory, unaligned; nullptr where they are not kept so.
  // For loops over many of them.
  [[nodiscard]] virtual const std::byte* length_table() const { return nullptr; }
  // Hash of the tokens themselves, which identity() need not read; empty where identity() says all.
  [[nodiscard]] virtual std::string content(ContentHash /*how*/) const { return {}; }
};

}  // namespace pentatron::datasets
