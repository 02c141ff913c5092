// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pentatron::tokenizers {

struct UnigramTrainOptions {
  std::int64_t vocab_size = 0;         // <unk>, <s>, </s>, <pad> and byte pieces included
  std::int64_t threads = 1;            // at most 128
  std::int64_t max_sentences = 0;      // a sample of so many sentences; 0: all
  double character_coverage = 0.9995;  // share of the text whose characters become pieces
  bool byte_fallback = true;           // other characters are bytes, not unknown
};

// Longer sentences are left out, as SentencePiece does; the caller may cut or count them.
inline constexpr std::size_t kMaxUnigramSentence = 4192;

// Trains a unigram language model (T. Kudo 2018, "Subword regularization") by the sentencepiece
// library: seed pieces, then EM steps that drop the pieces whose loss costs the least. next() gives
// one sentence a call, without line feed, valid until the next call, and false at the end; all (or
// the sample of) sentences are held in memory. Returns the bytes of a model file. The pieces depend
// on the number of threads in rounding only.
// Throws kConfig for a bad option, kData for what the library refuses (a vocabulary larger than the
// text gives, no text), and what next() throws.
[[nodiscard]] std::string train_unigram(const std::function<bool(std::string_view& sentence)>& next,
                                        const UnigramTrainOptions& options);

}  // namespace pentatron::tokenizers
