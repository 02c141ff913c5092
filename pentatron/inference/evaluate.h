// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/inference/document_scorer.h"
#include "pentatron/tokenizers/tokenizer.h"

// Zero-shot evaluations of a language model. Each is called on all ranks of the model; rank 0 reads
// the file (packed or plain) and gets the result, the others get none.
namespace pentatron::inference {

// Names and values, in the order in which they are shown.
using EvaluationNumbers = std::vector<std::pair<std::string, double>>;

// Perplexity of a text in WikiText's form, as Megatron measures it: the file is detokenised and
// encoded as one document, l is the mean loss over all its tokens but the first (windows and
// stride: the scorer's); perplexity exp(min(20, l)), adjusted_perplexity exp(min(20, l (tokens - 1)
// / (words - 1))), words being what single spaces separate in the file as it is. Gives loss,
// perplexity, adjusted_perplexity, tokens, words. Not UTF-8, or fewer than two words or tokens:
// kData.
[[nodiscard]] EvaluationNumbers evaluate_wikitext(const std::string& file, DocumentScorer& scorer,
                                                  const tokenizers::Tokenizer& tokenizer,
                                                  bool is_rank_0);

// LAMBADA's cloze: JSON lines with "text"; right is a line whose target tokens are each the
// likeliest. The target is the last token of the text; with `strict` all tokens of a space and the
// last word, after the text before it without white space at its ends. Gives accuracy, correct,
// examples. kData with file:line:column for a line without text, a word (or two tokens), or one
// that does not fit the model.
[[nodiscard]] EvaluationNumbers evaluate_lambada(const std::string& file, bool strict,
                                                 DocumentScorer& scorer,
                                                 const tokenizers::Tokenizer& tokenizer,
                                                 bool is_rank_0);

// Bits that the model needs for a byte of text: a number that models with other tokenizers share.
// JSON lines with "text" where the name says so (.jsonl, .ndjson, .json), else the file is one
// text. Every text begins with the beginning-of-sequence token, or the end-of-document one where
// there is none, so that all of its bytes are predicted. Gives bits_per_byte, loss (a token),
// tokens, bytes, documents.
[[nodiscard]] EvaluationNumbers evaluate_bits_per_byte(const std::string& file,
                                                       DocumentScorer& scorer,
                                                       const tokenizers::Tokenizer& tokenizer,
                                                       bool is_rank_0);

}  // namespace pentatron::inference
