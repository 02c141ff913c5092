// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/tokenizers/hugging_face_tokenizer.cc pentatron/tokenizers/staged_tokenizer.cc pentatron/tokenizers/staged_spans.cc pentatron/tokenizers/aligned_text.cc pentatron/tokenizers/token_list.cc pentatron/tokenizers/subword_model.cc pentatron/tokenizers/bpe_model.cc pentatron/tokenizers/word_piece_model.cc pentatron/tokenizers/unigram_model.cc pentatron/tokenizers/added_tokens.cc pentatron/tokenizers/normalizer.cc pentatron/tokenizers/base64.cc pentatron/tokenizers/charsmap.cc pentatron/tokenizers/grapheme.cc pentatron/tokenizers/word_splitter.cc pentatron/tokenizers/split_pattern.cc pentatron/tokenizers/pattern_parser.cc pentatron/tokenizers/code_point_set.cc pentatron/tokenizers/token_decoder.cc pentatron/tokenizers/white_space.cc pentatron/tokenizers/bpe_vocabulary.cc pentatron/tokenizers/bpe_merger.cc pentatron/tokenizers/word_cache.cc pentatron/tokenizers/pre_tokenizer.cc pentatron/tokenizers/byte_alphabet.cc pentatron/tokenizers/tokenizer.cc pentatron/base/error.cc pentatron/base/env.cc pentatron/base/file.cc pentatron/base/format.cc pentatron/base/json.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc pentatron/base/sha256.cc pentatron/base/hash_kernels.cc
// sources: pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc pentatron/base/printable.cc pentatron/tokenizers/word_rules.cc pentatron/tokenizers/byte_bpe.cc pentatron/tokenizers/char_kinds.cc pentatron/tokenizers/pair_table.cc
// libs: icuuc fmt crypto
// max_len: 4096
// clang-format on
//
// tokenizer.json, a zero byte, text. Properties: only Error of kind data or unsupported is thrown;
// a tokenizer that is made encodes any text, or says with such an error that it cannot, to ids that
// it has, the same ones again, decodes them, and tells places in the text for them.
#include <cstdint>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"
#include "pentatron/tokenizers/staged_tokenizer.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

using namespace pentatron;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view data(reinterpret_cast<const char*>(bytes), size);
  const std::size_t zero = data.find('\0');
  const std::string_view text = zero == std::string_view::npos ? "" : data.substr(zero + 1);
  try {
    const tokenizers::StagedTokenizer tokenizer(
        tokenizers::parse_tokenizer_json(data.substr(0, zero), "t"), {}, {}, true);
    for (const auto special :
         {tokenizers::SpecialTokens::kAsText, tokenizers::SpecialTokens::kParse}) {
      const std::vector<std::int32_t> ids = tokenizer.encode(text, special);
      for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
      require(tokenizer.encode(text, special) == ids);
      (void)tokenizer.decode(ids);
      const std::vector<tokenizers::TokenSpan> spans = tokenizer.spans(text, ids);
      require(spans.size() == ids.size());
      for (const tokenizers::TokenSpan& span : spans) {
        require(span.begin <= text.size() && span.end <= text.size());
      }
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kData || error.kind() == ErrorKind::kUnsupported);
  }
  return 0;
}
