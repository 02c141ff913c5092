// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/hugging_face_tokenizer.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/tokenizers/bpe_model.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/json_fields.h"
#include "pentatron/tokenizers/unigram_model.h"
#include "pentatron/tokenizers/word_piece_model.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::int32_t id_of(const json& value, std::string_view name) {
  PENTATRON_CHECK(
      value.is_number_unsigned() &&
          value.get<std::uint64_t>() < static_cast<std::uint64_t>(BpeVocabulary::kMaxTokens),
      kData, "{}: {} is no token id from 0 to {}", name, quoted_for_message(value.dump()),
      BpeVocabulary::kMaxTokens - 1);
  return static_cast<std::int32_t>(value.get<std::uint64_t>());
}

// Whether a byte-level stage stands in a pre-tokeniser: its words are raw bytes.
bool holds_byte_level(const json& stage) {
  if (!stage.is_object()) return false;
  if (stage.value("type", std::string()) == "ByteLevel") return true;
  const auto inner = stage.find("pretokenizers");
  return inner != stage.end() && inner->is_array() &&
         std::any_of(inner->begin(), inner->end(), holds_byte_level);
}

// A token of a byte-level vocabulary as raw bytes; one outside the alphabet (an added token that
// stands in the vocabulary too) as it is.
std::string raw_token(const std::string& token, bool byte_level) {
  if (!byte_level) return token;
  return visible_to_bytes(token).value_or(token);
}

void check_token(const std::string& token, std::string_view name) {
  PENTATRON_CHECK(!token.empty() && token.size() <= BpeVocabulary::kMaxTokenBytes, kData,
                  "{}: a token of {} bytes; from 1 to {} are allowed", name, token.size(),
                  BpeVocabulary::kMaxTokenBytes);
}

TokenList read_vocabulary(const json& vocab, bool byte_level, std::string_view name) {
  PENTATRON_CHECK(vocab.is_object() && !vocab.empty(), kData,
                  "{}: the model's vocab is not an object of token: id", name);
  std::vector<std::string> tokens;
  for (const auto& [token, value] : vocab.items()) {
    check_token(token, name);
    const auto id = static_cast<std::size_t>(id_of(value, name));
    if (id >= tokens.size()) tokens.resize(id + 1);
    PENTATRON_CHECK(tokens[id].empty(), kData, "{}: id {} is given to two tokens", name, id);
    tokens[id] = raw_token(token, byte_level);
  }
  return TokenList(std::move(tokens), name);
}

std::vector<std::pair<std::int32_t, std::int32_t>> read_merges(const json& merges,
                                                               const TokenList& tokens,
                                                               bool byte_level,
                                                               std::string_view name) {
  PENTATRON_CHECK(merges.is_array(), kData, "{}: the model's merges are not a list", name);
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  pairs.reserve(merges.size());
  const auto find = [&](const std::string& text) {
    const std::int32_t id = tokens.find(raw_token(text, byte_level));
    PENTATRON_CHECK(id >= 0, kData, "{}: merge {}: {} is not in the vocabulary", name, pairs.size(),
                    quoted_for_message(text));
    return id;
  };
  for (const json& merge : merges) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      PENTATRON_CHECK(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
                      kData, "{}: merge {}: expected two tokens with one space between, got {}",
                      name, pairs.size(), quoted_for_message(text));
      pairs.emplace_back(find(text.substr(0, space)), find(text.substr(space + 1)));
    } else {
      PENTATRON_CHECK(
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
          kData, "{}: merge {} is not a pair of tokens", name, pairs.size());
      pairs.emplace_back(find(merge[0].get<std::string>()), find(merge[1].get<std::string>()));
    }
  }
  return pairs;
}

// Then a byte-level model meets nothing unknown, whatever token it has for that.
bool has_all_bytes(const TokenList& tokens) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (tokens.find(std::string_view(&c, 1)) < 0) return false;
  }
  return true;
}

std::int32_t unknown_id(const json& model, const TokenList& tokens, std::string_view name) {
  if (!has_member(model, "unk_token")) return -1;
  const std::string text = text_member(model, "unk_token", name);
  const std::int32_t id = tokens.find(text);
  PENTATRON_CHECK(id >= 0, kData, "{}: the unknown token {} is not in the vocabulary", name,
                  quoted_for_message(text));
  return id;
}

std::unique_ptr<SubwordModel> read_bpe(const json& model, bool byte_level, std::string_view name) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    PENTATRON_CHECK(!has_member(model, key) || text_member(model, key, name).empty(), kUnsupported,
                    "{}: a BPE model with {} is not supported", name, key);
  }
  PENTATRON_CHECK(!has_member(model, "dropout") || model["dropout"] == 0, kUnsupported,
                  "{}: a BPE model with dropout is not supported: its ids are random", name);
  TokenList tokens = read_vocabulary(member(model, "vocab", name), byte_level, name);
  const BpeOptions options{
      .ignore_merges = flag_member(model, "ignore_merges", false, name),
      .byte_fallback = flag_member(model, "byte_fallback", false, name),
      .fuse_unknown = flag_member(model, "fuse_unk", false, name),
      .unknown = byte_level && has_all_bytes(tokens) ? -1 : unknown_id(model, tokens, name)};
  const auto merges = read_merges(member(model, "merges", name), tokens, byte_level, name);
  return BpeModel::from_merges(std::move(tokens), merges, byte_level, options);
}

std::unique_ptr<SubwordModel> read_word_piece(const json& model, std::string_view name) {
  TokenList tokens = read_vocabulary(member(model, "vocab", name), false, name);
  const std::int32_t unknown = unknown_id(model, tokens, name);
  PENTATRON_CHECK(unknown >= 0, kData, "{}: a WordPiece model needs unk_token", name);
  const json& most = member(model, "max_input_chars_per_word", name);
  PENTATRON_CHECK(most.is_number_unsigned() && most.get<std::uint64_t>() <= 10'000, kData,
                  "{}: max_input_chars_per_word is no count up to 10000", name);
  return std::make_unique<WordPieceModel>(std::move(tokens),
                                          text_member(model, "continuing_subword_prefix", name),
                                          unknown, most.get<std::size_t>());
}

std::unique_ptr<SubwordModel> read_unigram(const json& model, bool byte_level,
                                           std::string_view name) {
  PENTATRON_CHECK(!byte_level, kUnsupported, "{}: a Unigram model over bytes is not supported",
                  name);
  const json& vocab = member(model, "vocab", name);
  PENTATRON_CHECK(vocab.is_array() && !vocab.empty(), kData,
                  "{}: the model's vocab is not a list of [token, score]", name);
  std::vector<std::string> tokens;
  std::vector<double> scores;
  for (const json& entry : vocab) {
    PENTATRON_CHECK(
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number(),
        kData, "{}: entry {} of the vocab is not [token, score]", name, tokens.size());
    tokens.push_back(entry[0].get<std::string>());
    check_token(tokens.back(), name);
    scores.push_back(entry[1].get<double>());
  }
  const std::int32_t unknown = has_member(model, "unk_id") ? id_of(model["unk_id"], name) : -1;
  PENTATRON_CHECK(unknown < std::ssize(tokens), kData, "{}: unk_id {} is outside the vocabulary",
                  name, unknown);
  return std::make_unique<UnigramModel>(TokenList(std::move(tokens), name), std::move(scores),
                                        unknown, flag_member(model, "byte_fallback", false, name));
}

std::unique_ptr<SubwordModel> read_model(const json& model, bool byte_level,
                                         std::string_view name) {
  // Files of old versions leave the type out.
  std::string type = has_member(model, "type") ? text_member(model, "type", name) : std::string();
  if (type.empty()) {
    type = model.contains("merges")                      ? "BPE"
           : model.contains("continuing_subword_prefix") ? "WordPiece"
                                                         : "Unigram";
  }
  if (type == "BPE") return read_bpe(model, byte_level, name);
  if (type == "WordPiece") return read_word_piece(model, name);
  if (type == "Unigram") return read_unigram(model, byte_level, name);
  PENTATRON_THROW(kUnsupported, "{}: the model {} is not supported", name,
                  quoted_for_message(type));
}

std::vector<AddedToken> read_added_tokens(const json& list, std::string_view name) {
  std::vector<AddedToken> tokens;
  for (const json& entry : list) {
    AddedToken token{.id = id_of(member(entry, "id", name), name),
                     .content = text_member(entry, "content", name),
                     .special = flag_member(entry, "special", false, name),
                     .single_word = flag_member(entry, "single_word", false, name),
                     .lstrip = flag_member(entry, "lstrip", false, name),
                     .rstrip = flag_member(entry, "rstrip", false, name)};
    token.normalized = flag_member(entry, "normalized", !token.special, name);
    check_token(token.content, name);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Ids of a template's special tokens before and after the text.
void read_template(const json& processor, TokenizerStages& stages, std::string_view name) {
  const json& table = member(processor, "special_tokens", name);
  bool before = true;
  for (const json& piece : member(processor, "single", name)) {
    PENTATRON_CHECK(piece.is_object() && piece.size() == 1, kData,
                    "{}: the template's pieces are not {{SpecialToken}} or {{Sequence}}", name);
    if (piece.contains("Sequence")) {
      before = false;
      continue;
    }
    const std::string token = text_member(member(piece, "SpecialToken", name), "id", name);
    for (const json& id : member(member(table, token.c_str(), name), "ids", name)) {
      (before ? stages.before : stages.after).push_back(id_of(id, name));
    }
  }
}

void read_post_processor(const json& processor, TokenizerStages& stages, std::string_view name) {
  if (processor.is_null()) return;
  const std::string type = text_member(processor, "type", name);
  if (type == "ByteLevel") return;  // changes offsets only
  if (type == "TemplateProcessing") return read_template(processor, stages, name);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const json& cls = member(processor, "cls", name);
    const json& sep = member(processor, "sep", name);
    PENTATRON_CHECK(cls.is_array() && cls.size() == 2 && sep.is_array() && sep.size() == 2, kData,
                    "{}: cls and sep are not [token, id]", name);
    stages.before.push_back(id_of(cls[1], name));
    stages.after.push_back(id_of(sep[1], name));
    return;
  }
  if (type == "Sequence") {
    for (const json& one : member(processor, "processors", name)) {
      read_post_processor(one, stages, name);
    }
    return;
  }
  PENTATRON_THROW(kUnsupported, "{}: the post-processor {} is not supported", name,
                  quoted_for_message(type));
}

// "eos_token" and the like: a text, or an object with "content".
std::string token_text(const json& object, const char* key) {
  if (!has_member(object, key)) return {};
  const json& value = object[key];
  if (value.is_string()) return value.get<std::string>();
  return value.is_object() ? value.value("content", std::string()) : std::string();
}

json read_optional_json(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  json value = parse_json(read_text_file(path, BpeVocabulary::kMaxFileBytes), path.string());
  PENTATRON_CHECK(value.is_object(), kData, "{}: not an object", path.string());
  return value;
}

std::int32_t find_token(const TokenizerStages& stages, const std::string& text) {
  if (text.empty()) return -1;
  for (const AddedToken& token : stages.added_tokens) {
    if (token.content == text) return token.id;
  }
  return stages.model->tokens().find(text);
}

std::string read_chat_template(const fs::path& folder, const json& config) {
  const fs::path file = folder / "chat_template.jinja";
  if (fs::exists(file)) return read_text_file(file, BpeVocabulary::kMaxFileBytes);
  if (!has_member(config, "chat_template")) return {};
  const json& value = config["chat_template"];
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return {};
  for (const json& entry : value) {
    if (entry.is_object() && entry.value("name", std::string()) == "default") {
      return entry.value("template", std::string());
    }
  }
  return {};
}

TokenizerStages read_stages(std::string_view text, std::string_view name) {
  const json root = parse_json(text, name);
  PENTATRON_CHECK(root.is_object(), kData, "{}: not an object", name);
  const auto optional = [&](const char* key) {
    const auto found = root.find(key);
    return found == root.end() ? json() : *found;
  };
  const json splitter = optional("pre_tokenizer");
  TokenizerStages stages;
  stages.normalizer = make_normalizer(optional("normalizer"), name);
  stages.splitter = make_word_splitter(splitter, name);
  stages.model = read_model(member(root, "model", name), holds_byte_level(splitter), name);
  stages.added_tokens = read_added_tokens(optional("added_tokens"), name);
  read_post_processor(optional("post_processor"), stages, name);
  const json decoder = optional("decoder");
  stages.decoder = make_token_decoder(decoder, name);
  stages.join_with_space = decoder.is_null();
  stages.identity = stages.model->identity_hash();
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "added_tokens"}) {
    stages.identity += "\n" + dump_json(optional(key));
  }
  return stages;
}

// A folder that holds another kind of tokenizer says which type reads it.
void check_folder(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json")) return;
  std::string_view hint;
  if (fs::exists(folder / "tokenizer.model")) {
    hint = ": its tokenizer.model is of --tokenizer-type SentencePieceTokenizer or Llama2Tokenizer";
  } else if (fs::exists(folder / "merges.txt")) {
    hint = ": its merges.txt is of --tokenizer-type GPT2BPETokenizer (--merge-file, --vocab-file)";
  } else if (fs::exists(folder / "vocab.txt")) {
    hint = ": its vocab.txt is of --tokenizer-type BertWordPieceCase or BertWordPieceLowerCase";
  }
  PENTATRON_THROW(kIo, "{} holds no tokenizer.json{}", folder.string(), hint);
}

// Ids that the template puts around a text are tokens, of the model or added.
TokenizerStages with_known_template(TokenizerStages stages, std::string_view name) {
  auto end = static_cast<std::int32_t>(stages.model->tokens().size());
  for (const AddedToken& token : stages.added_tokens) end = std::max(end, token.id + 1);
  for (const std::vector<std::int32_t>* ids : {&stages.before, &stages.after}) {
    for (const std::int32_t id : *ids) {
      PENTATRON_CHECK(id < end, kData,
                      "{}: the post-processor's token id {} is outside the vocabulary of {}", name,
                      id, end);
    }
  }
  return stages;
}

}  // namespace

TokenizerStages parse_tokenizer_json(std::string_view text, std::string_view name) {
  try {
    return with_known_template(read_stages(text, name), name);
  } catch (const Error& error) {
    // A pattern or a vocabulary does not know the file that it stands in.
    if (std::string_view(error.what()).find(name) != std::string_view::npos) throw;
    throw Error(error.kind(), fmt::format("{}: {}", name, error.what()), __FILE__, __LINE__);
  }
}

std::unique_ptr<StagedTokenizer> load_hugging_face_tokenizer(const fs::path& path,
                                                             const HuggingFaceOptions& options) {
  const bool is_folder = fs::is_directory(path);
  if (is_folder) check_folder(path);
  const fs::path file = is_folder ? path / "tokenizer.json" : path;
  const fs::path folder = file.parent_path();
  TokenizerStages stages =
      parse_tokenizer_json(read_text_file(file, BpeVocabulary::kMaxFileBytes), file.string());
  const json config = read_optional_json(folder / "tokenizer_config.json");
  const json map = read_optional_json(folder / "special_tokens_map.json");
  std::int64_t next_id = stages.model->tokens().size();
  for (const AddedToken& token : stages.added_tokens) {
    next_id = std::max<std::int64_t>(next_id, token.id + 1);
  }
  for (const std::string& text : options.special_tokens) {
    if (find_token(stages, text) >= 0) continue;
    stages.added_tokens.push_back(
        {.id = static_cast<std::int32_t>(next_id++), .content = text, .special = true});
  }
  const auto special = [&](const char* key) {
    const std::string text = token_text(config, key);
    return find_token(stages, text.empty() ? token_text(map, key) : text);
  };
  const SpecialTokenIds ids{
      .bos = special("bos_token"), .eos = special("eos_token"), .pad = special("pad_token")};
  std::string list;
  for (const std::string& text : options.special_tokens) {
    list += (list.empty() ? "" : ", ") + python_repr(text);
  }
  TokenizerDescription description{
      .class_name = std::string(kMegatronTextClass),
      .tokenizer_path = path.string(),
      .arguments = {
          {"chat_template", options.chat_template.empty() ? "None" : options.chat_template},
          {"vocab_file", "None"},
          {"merges_file", "None"},
          {"additional_special_tokens", "[" + list + "]"},
          {"use_fast", "True"},
          {"trust_remote_code", "False"},
          {"include_special_tokens", options.include_special_tokens ? "True" : "False"}}};
  auto tokenizer = std::make_unique<StagedTokenizer>(std::move(stages), ids, std::move(description),
                                                     options.include_special_tokens);
  tokenizer->set_chat_template(read_chat_template(folder, config));
  return tokenizer;
}

}  // namespace pentatron::tokenizers
