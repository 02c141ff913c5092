// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pentatron/datasets/numpy_random.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// What masked samples need to know of a vocabulary.
struct MaskVocabulary {
  std::int64_t size = 0;  // tokens, among them the random ones; sentinels included
  std::int64_t cls = -1;  // -1 here and below: there is none
  std::int64_t sep = -1;
  std::int64_t mask = -1;
  std::int64_t pad = -1;  // also when another special token has the same id
  std::int64_t bos = -1;
  std::int64_t eos = -1;
  std::vector<std::int64_t> sentinels = {};  // <extra_id_0> and so on
  std::vector<bool> continues = {};          // [size]: goes on with a word ("##ing")
};

// Of a tokenizer: [CLS], [SEP] and [MASK] by their names; the sentinels are its tokens
// <extra_id_N>, or else `extra_ids` ids (--vocab-extra-ids) after its last token.
[[nodiscard]] MaskVocabulary mask_vocabulary(const tokenizers::Tokenizer& tokenizer,
                                             std::int64_t extra_ids = 0);

struct MaskOptions {
  double probability = 0.15;   // --mask-prob: share of the tokens to mask
  std::int64_t max_ngram = 3;  // words masked together, at most; 1 to 128
  bool whole_words = true;     // a word is masked with all its pieces
  bool longer_ngrams = false;  // prefer long runs of words to short ones
  bool geometric = false;      // lengths by SpanBERT's distribution instead (p = 0.2)
};

// Places that were masked together, rising, and the tokens that stood there.
struct MaskedSpan {
  std::vector<std::int64_t> places;
  std::vector<std::int64_t> labels;
};

struct MaskedTokens {
  std::vector<std::int64_t> tokens;  // after masking
  std::vector<MaskedSpan> spans;     // in the order of their first place
};

// What is put at a masked place: a token, or none to leave it as it is.
using MaskDraw = std::function<std::optional<std::int64_t>(NumpyRandomState&)>;

// Chooses tokens to be predicted (J. Devlin et al. 2018, "BERT"; M. Joshi et al. 2019, "SpanBERT"),
// draw for draw as Megatron's masked datasets: words in random order, each with the words after it
// up to a drawn number, until `probability` of the tokens are masked (of the target length, if that
// is less). [CLS] and [SEP] are never masked. Megatron's permutation of words is left out: it draws
// from a generator that no seed of the sample sets, and none of its models asks for it.
[[nodiscard]] MaskedTokens mask_tokens(std::span<const std::int64_t> tokens,
                                       std::int64_t target_length, const MaskOptions& options,
                                       const MaskVocabulary& vocabulary, const MaskDraw& draw,
                                       NumpyRandomState& random);

// A text that differs when what is masked may differ.
[[nodiscard]] std::string mask_identity(const MaskOptions& options,
                                        const MaskVocabulary& vocabulary);

// kConfig for an option out of range.
void check_mask_options(const MaskOptions& options);

}  // namespace pentatron::datasets
