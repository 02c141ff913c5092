// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/tokenizers/tiktoken_tokenizer.cc pentatron/tokenizers/base64.cc pentatron/tokenizers/staged_tokenizer.cc pentatron/tokenizers/staged_spans.cc pentatron/tokenizers/aligned_text.cc pentatron/tokenizers/token_list.cc pentatron/tokenizers/subword_model.cc pentatron/tokenizers/bpe_model.cc pentatron/tokenizers/word_piece_model.cc pentatron/tokenizers/unigram_model.cc pentatron/tokenizers/added_tokens.cc pentatron/tokenizers/normalizer.cc pentatron/tokenizers/charsmap.cc pentatron/tokenizers/grapheme.cc pentatron/tokenizers/word_splitter.cc pentatron/tokenizers/split_pattern.cc pentatron/tokenizers/pattern_parser.cc pentatron/tokenizers/code_point_set.cc pentatron/tokenizers/token_decoder.cc pentatron/tokenizers/white_space.cc pentatron/tokenizers/bpe_vocabulary.cc pentatron/tokenizers/bpe_merger.cc pentatron/tokenizers/word_cache.cc pentatron/tokenizers/pre_tokenizer.cc pentatron/tokenizers/byte_alphabet.cc pentatron/tokenizers/tokenizer.cc pentatron/tokenizers/streaming_decoder.cc
// sources: pentatron/base/error.cc pentatron/base/env.cc pentatron/base/file.cc pentatron/base/format.cc pentatron/base/json.cc pentatron/base/stop_cleanup.cc pentatron/base/fault.cc pentatron/base/sha256.cc pentatron/base/hash_kernels.cc pentatron/base/screen.cc pentatron/base/terminal.cc pentatron/base/mapping_faults.cc pentatron/base/printable.cc pentatron/tokenizers/word_rules.cc pentatron/tokenizers/byte_bpe.cc pentatron/tokenizers/char_kinds.cc pentatron/tokenizers/pair_table.cc
// libs: icuuc fmt crypto
// max_len: 2048
// clang-format on
//
// The first byte chooses, modulo 3. 0: the rest is a file of Megatron's TikTokenizer, which only
// Errors of kind data refuse. 1: tokens (a size modulo 16, their bytes) up to a size of zero, which
// become ranks after the 256 bytes, then a text. 2: a text for both patterns over a fixed file.
// Any text comes back from its ids, whole and one id at a time, and the spans are the text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_model.h"
#include "pentatron/tokenizers/streaming_decoder.h"
#include "pentatron/tokenizers/subword_model.h"
#include "pentatron/tokenizers/tiktoken_tokenizer.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

namespace {

using namespace pentatron;
using namespace pentatron::tokenizers;

std::vector<std::string> bytes_as_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    const std::size_t count = bytes.size() - at < 3 ? bytes.size() - at : 3;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = (bits << 8) | (i < count ? static_cast<std::uint8_t>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? kAlphabet[(bits >> (18 - 6 * i)) & 63U] : '=';
    }
  }
  return text;
}

std::unique_ptr<StagedTokenizer> fixed_tokenizer(TiktokenPattern pattern) {
  std::vector<std::string> tokens = bytes_as_tokens();
  for (const char* token : {"  ", "th", "the", " the", "in", "ing", "\r\n", "12", "\xC3\xA9"}) {
    tokens.emplace_back(token);
  }
  std::string text;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    text += (rank == 0 ? "[" : ",") + std::string("{\"rank\":") + std::to_string(rank) +
            ",\"token_bytes\":\"" + base64_of(tokens[rank]) + "\",\"token_str\":\"\"}";
  }
  const TiktokenOptions options{.pattern = pattern,
                                .vocab_size = 10 + static_cast<std::int64_t>(tokens.size()),
                                .num_special_tokens = 10};
  return parse_tiktoken_tokenizer(text + "]", "t", options);
}

void check_text(const Tokenizer& tokenizer, std::string_view text, bool spans) {
  for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text, special);
    for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
    require(tokenizer.decode(ids) == text);
    StreamingDecoder decoder(tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += decoder.add(id);
    require(streamed + decoder.finish() == tokenizer.decode_utf8(ids));
    if (!spans) continue;
    const std::vector<TokenSpan> found = tokenizer.spans(text, ids);
    require(found.size() == ids.size());
    std::size_t at = 0;
    for (const TokenSpan& span : found) {
      require(span.begin == at && span.end > at);
      at = span.end;
    }
    require(at == text.size());
  }
}

void check_ranks(std::string_view data) {
  std::vector<std::string> tokens = bytes_as_tokens();
  while (!data.empty()) {
    const std::size_t size = static_cast<std::uint8_t>(data.front()) % 16;
    data.remove_prefix(1);
    if (size == 0) break;
    tokens.emplace_back(data.substr(0, size));
    data.remove_prefix(tokens.back().size());
  }
  TokenizerStages stages;
  // Two equal tokens are refused.
  stages.model = BpeModel::from_ranks(TokenList(std::move(tokens), "t"), 0);
  check_text(StagedTokenizer(std::move(stages), {}, {}, false), data, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view data(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  try {
    switch (bytes[0] % 3) {
      case 0: {
        const auto tokenizer =
            parse_tiktoken_tokenizer(data, "t", {.vocab_size = 9, .num_special_tokens = 7});
        require(tokenizer == nullptr);  // two tokens are not all bytes
        break;
      }
      case 1:
        check_ranks(data);
        break;
      default: {
        static const auto kV1 = fixed_tokenizer(TiktokenPattern::kV1);
        static const auto kV2 = fixed_tokenizer(TiktokenPattern::kV2);
        check_text(*kV1, data, true);
        check_text(*kV2, data, true);
      }
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kData && bytes[0] % 3 != 2);
  }
  return 0;
}
