// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bert_tokenizer.h"

#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/word_piece_model.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::size_t kMaxCharacters = 100;

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, BpeVocabulary::kMaxFileBytes);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    PENTATRON_CHECK(line.size() <= BpeVocabulary::kMaxTokenBytes &&
                        std::ssize(lines) < BpeVocabulary::kMaxTokens,
                    kData, "{}:{}: a token of {} bytes or too many tokens", path.string(),
                    lines.size() + 1, line.size());
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::unique_ptr<StagedTokenizer> load_bert_tokenizer(const std::filesystem::path& vocab_file,
                                                     bool lower_case) {
  TokenList tokens(read_lines(vocab_file), vocab_file.string());
  const auto id_of = [&](std::string_view token) {
    const std::int32_t id = tokens.find(token);
    PENTATRON_CHECK(id >= 0, kData, "{}: no token {}: not a vocabulary of BERT",
                    vocab_file.string(), token);
    return id;
  };
  TokenizerStages stages;
  for (const char* special : {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}) {
    stages.added_tokens.push_back({.id = id_of(special), .content = special, .special = true});
  }
  const std::int32_t unknown = id_of("[UNK]");
  const std::int32_t cls = id_of("[CLS]");
  const std::int32_t sep = id_of("[SEP]");
  const std::int32_t pad = id_of("[PAD]");
  // Sentinels that Megatron adds to the cased vocabulary.
  constexpr int kNumSentinels = 100;
  for (int i = 0; !lower_case && i < kNumSentinels; ++i) {
    stages.added_tokens.push_back({.id = static_cast<std::int32_t>(tokens.size()) + i,
                                   .content = fmt::format("<extra_id_{}>", i),
                                   .special = true});
  }
  stages.normalizer = make_bert_normalizer({.strip_accents = lower_case, .lowercase = lower_case});
  stages.splitter = make_bert_word_splitter();
  stages.model = std::make_unique<WordPieceModel>(std::move(tokens), "##", unknown, kMaxCharacters);
  stages.before = {cls};
  stages.after = {sep};
  stages.decoder = make_token_decoder(
      nlohmann::json{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}, "decoder");
  stages.identity = fmt::format("bert {} {}", lower_case, stages.model->identity_hash());
  const std::string name = lower_case ? "BertWordPieceLowerCase" : "BertWordPieceCase";
  TokenizerDescription description{.class_name = std::string(kMegatronTextClass),
                                   .tokenizer_path = name,
                                   .arguments = {{"additional_special_tokens", "[]"},
                                                 {"vocab_file", vocab_file.string()},
                                                 {"merges_file", "None"},
                                                 {"use_fast", "True"},
                                                 {"trust_remote_code", "False"},
                                                 {"include_special_tokens", "True"}}};
  return std::make_unique<StagedTokenizer>(std::move(stages),
                                           SpecialTokenIds{.bos = cls, .eos = sep, .pad = pad},
                                           std::move(description), true);
}

}  // namespace pentatron::tokenizers
