// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "pentatron/tokenizers/aligned_text.h"

namespace pentatron::tokenizers {

// A normaliser of tokenizer.json: text in, text out. Linear in the text's length.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` need not be valid UTF-8; bytes that are not stay as they are.
  [[nodiscard]] virtual std::string apply(std::string_view text) const = 0;
  // The same, with where each byte comes from.
  virtual void apply(AlignedText& text) const = 0;
};
using NormalizerPtr = std::unique_ptr<Normalizer>;

// From the member "normalizer" of a tokenizer.json; null gives nullptr. What is not supported
// throws kUnsupported naming it, what is malformed kData; `name` is the file's.
[[nodiscard]] NormalizerPtr make_normalizer(const nlohmann::json& json, std::string_view name);

// "BertNormalizer" of tokenizer.json.
struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
[[nodiscard]] NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options);

}  // namespace pentatron::tokenizers
