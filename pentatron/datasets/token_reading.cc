// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/token_reading.h"

#include <fmt/format.h>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

void read_tokens(const Corpus& corpus, std::int64_t sequence, std::int64_t offset,
                 std::span<std::int64_t> out, std::int64_t vocab_size) {
  try {
    corpus.read(sequence, offset, out);
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("{} (while sequence {} of {}, document {}, was read)", error.what(),
                            sequence, corpus.name(), corpus.document_of(sequence)));
  }
  for (const std::int64_t token : out) {
    PENTATRON_CHECK(
        token >= 0 && token < vocab_size, kData,
        "{}: sequence {} (document {}) holds token {}, but the vocabulary has {} entries: the "
        "corpus was made with another tokenizer; give the --tokenizer-type, --vocab-file or "
        "--vocab-size it was made with",
        corpus.name(), sequence, corpus.document_of(sequence), token, vocab_size);
  }
}

}  // namespace pentatron::datasets
