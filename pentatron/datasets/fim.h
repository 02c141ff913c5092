// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pentatron/datasets/numpy_random.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// Names are those of the options.
struct FimOptions {
  double rate = 0.5;              // share of documents (or fragments' documents) to permute
  double spm_rate = 0.5;          // of those, share in the order suffix, prefix, middle
  std::string split_sample = {};  // a token that ends a fragment; empty: whole documents
  std::optional<double> fragment_rate = {};  // share of the fragments of such a document
  std::string no_prefix = {};                // text that begins like this stays; empty: none does
  std::string prefix_token = "<fim_prefix>";
  std::string middle_token = "<fim_middle>";
  std::string suffix_token = "<fim_suffix>";
  std::string pad_token = "<fim_pad>";
  std::string eod_token = "<|endoftext|>";
};

// Fill in the middle (M. Bavarian et al., "Efficient training of language models to fill in the
// middle", 2022), with the rules of Megatron's GPTFIMDataset, draw for draw: the text of a document
// is cut at two random characters, and its three parts are encoded anew and put in the order
// prefix, suffix, middle or (variant 2 of the paper) suffix, prefix, middle, each behind its token.
// Const methods may be called from several threads.
class FimTransform final {
 public:
  // `tokenizer` must outlive it. kConfig for a token that it does not have, a rate outside [0, 1],
  // and a split_sample without a fragment_rate.
  FimTransform(const FimOptions& options, const tokenizers::Tokenizer& tokenizer);

  // The tokens of a sample, as many as came, with the documents between its end-of-document tokens
  // permuted by draws from `random`. What no longer fits is cut off, what is too short is padded.
  [[nodiscard]] std::vector<std::int64_t> apply(std::span<const std::int64_t> tokens,
                                                NumpyRandomState& random) const;
  // The same with a generator of the sample's own, keyed by seed and place in the training order:
  // Megatron has one generator a reading process, whose draws depend on what was read before.
  [[nodiscard]] std::vector<std::int64_t> apply(std::span<const std::int64_t> tokens,
                                                std::int64_t seed, std::int64_t sample) const;

  // A text that differs when apply() may.
  [[nodiscard]] std::string identity() const;

 private:
  using Tokens = std::vector<std::int64_t>;
  void permute_document(std::span<const std::int64_t> tokens, NumpyRandomState& random,
                        Tokens& out) const;
  void permute(std::span<const std::int64_t> tokens, double rate, NumpyRandomState& random,
               Tokens& out) const;
  [[nodiscard]] std::string text_of(std::span<const std::int64_t> tokens) const;

  FimOptions options_;
  const tokenizers::Tokenizer& tokenizer_;
  std::optional<std::int64_t> split_;
  std::int64_t prefix_, middle_, suffix_, pad_, eod_;
};

}  // namespace pentatron::datasets
