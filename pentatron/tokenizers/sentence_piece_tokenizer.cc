// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/sentencepiece/sentence_piece_api.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/sentence_piece_library.h"
#include "pentatron/tokenizers/sentence_piece_model_check.h"
#include "pentatron/tokenizers/white_space.h"

namespace pentatron::tokenizers {
namespace {

const SentencePieceLibrary& library() { return sentence_piece_library(); }

std::optional<std::int32_t> known(std::int32_t id) {
  return id < 0 ? std::nullopt : std::optional(id);
}

constexpr std::string_view kSpaceMark = "\u262f";  // stands for a space that would be dropped
constexpr std::string_view kSpacePiece = "\u2581";

std::string_view without_trailing_space(std::string_view text) {
  const std::string_view core = stripped(text);
  return core.empty() ? core : text.substr(0, static_cast<std::size_t>(core.end() - text.begin()));
}

// re.sub(r"(?<= )(?= )|^ | $", " MARK ", text).rstrip(), as Python reads it: `$` is the end or
// before a newline that ends the text, and a match of no width does not keep the next character
// from being one.
std::string with_marked_spaces(std::string_view text) {
  const std::string mark = " " + std::string(kSpaceMark) + " ";
  const auto is_space = [&](std::size_t at) { return at < text.size() && text[at] == ' '; };
  const auto is_end = [&](std::size_t at) {
    return at == text.size() || (at + 1 == text.size() && text[at] == '\n');
  };
  std::string marked;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool between = at > 0 && is_space(at - 1) && is_space(at);
    if (between) marked += mark;
    const bool outer = is_space(at) && (at == 0 || is_end(at + 1));
    if (outer) {
      marked += mark;
    } else {
      marked += text[at];
    }
  }
  return std::string(without_trailing_space(marked));
}

// The next places of tokens in a text, each looked for once: ties go to the first token.
class NextTokens final {
 public:
  NextTokens(std::string_view text, std::size_t count) : text_(text), places_(count, 0) {}

  // Which token stands first at or after `at`, and where; none where no one does. `token_text`
  // gives the text of a token.
  template <typename TokenText>
  std::optional<std::pair<std::size_t, std::size_t>> find(std::size_t at, TokenText token_text) {
    std::optional<std::pair<std::size_t, std::size_t>> first;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      std::size_t& place = places_[i];
      if (place == std::string_view::npos) continue;
      if (!looked_ || place < at) place = text_.find(token_text(i), at);
      if (place == std::string_view::npos) continue;
      if (!first || place < first->second) first = {i, place};
    }
    looked_ = true;
    return first;
  }

 private:
  std::string_view text_;
  std::vector<std::size_t> places_;
  bool looked_ = false;
};

}  // namespace

struct SentencePieceTokenizer::Model {
  pentatron_sentence_piece* handle = nullptr;
  PentatronSentencePieceInfo info{};
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() {
    if (handle != nullptr) library().close(handle);
  }
};

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& model_file,
                                               SentencePieceOptions options)
    : model_(std::make_unique<Model>()),
      options_(std::move(options)),
      model_file_(model_file.string()) {
  const std::string content = read_text_file(model_file, BpeVocabulary::kMaxFileBytes);
  check_sentence_piece_model(content, model_file_);
  const char* problem = library().open(content.data(), content.size(), &model_->handle);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: not a SentencePiece model: {}", model_file_,
                  replace_invalid_utf8(problem));
  model_->info = library().describe(model_->handle);
  reach_ = reach_of_sentence_piece_model(content);
  Sha256 hash;
  hash.update("sentencepiece\n");
  hash.update(content);
  vocab_size_ = model_->info.size;
  separator_ = token_id(kSpacePiece).value_or(model_->info.unknown);
  std::vector<std::int32_t> one;
  std::vector<std::int32_t> two;
  encode_plain("x y", one);
  encode_plain("x  y", two);
  drops_extra_spaces_ = one == two;
  add_special_tokens();
  // Without these options the hash is that of the model, as checkpoints hold it.
  if (marks_spaces()) hash.update("\nmarked spaces");
  if (options_.legacy) hash.update("\nlegacy");
  for (const Special& token : special_) hash.update(fmt::format("\n{} {}", token.id, token.text));
  identity_hash_ = hash.hex_digest();
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::add_special_tokens() {
  PENTATRON_CHECK(options_.legacy || options_.special_tokens.empty(), kInternal,
                  "special tokens beside a SentencePiece model need `legacy`");
  for (const std::string& text : options_.special_tokens) {
    PENTATRON_CHECK(!text.empty(), kConfig, "--tokenizer-special-tokens holds an empty token");
    if (std::ranges::find(special_, text, &Special::text) != special_.end()) continue;
    const std::int32_t piece = token_id(text).value_or(model_->info.unknown);
    const std::int32_t id = piece == model_->info.unknown ? vocab_size_++ : piece;
    special_.push_back({.text = text, .id = id});
    special_by_id_.emplace(id, text);
  }
}

void SentencePieceTokenizer::do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                                       SpecialTokens /*special*/) const {
  std::string marked;
  if (marks_spaces()) {
    marked = with_marked_spaces(text);
    text = marked;
  }
  if (!special_.empty()) return encode_with_special(text, ids);
  return marks_spaces() ? encode_marked(text, ids) : encode_plain(text, ids);
}

// Text between tokens, and the tokens. What lies before a token has its marks encoded as they
// stand, what lies behind the last one has not: Megatron's way.
void SentencePieceTokenizer::encode_with_special(std::string_view text,
                                                 std::vector<std::int32_t>& ids) const {
  const auto text_of = [this](std::size_t i) -> const std::string& { return special_[i].text; };
  NextTokens next(text, special_.size());
  std::size_t at = 0;
  bool behind_token = false;
  while (const auto found = next.find(at, text_of)) {
    const auto [which, place] = *found;
    const std::size_t before = ids.size();
    encode_plain(text.substr(at, place - at), ids);
    if (behind_token && ids.size() > before && ids[before] == separator_) {
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(before));
    }
    ids.push_back(special_[which].id);
    behind_token = true;
    at = place + special_[which].text.size();
  }
  const std::string_view rest = text.substr(at);
  if (marks_spaces()) {
    encode_marked(rest, ids);
  } else {
    encode_plain(rest, ids);
  }
}

// Each part ends with a mark, so that its last space is none at an end; the mark's id goes.
void SentencePieceTokenizer::encode_marked(std::string_view text,
                                           std::vector<std::int32_t>& ids) const {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kSpaceMark), text.size());
    if (end > 0) {
      const std::size_t before = ids.size();
      encode_plain(std::string(text.substr(0, end)) + std::string(kSpaceMark), ids);
      if (ids.size() > before) ids.pop_back();
    }
    text.remove_prefix(std::min(end + kSpaceMark.size(), text.size()));
  }
}

// Of unknown pieces the library joins all that follow each other.
ShortenedText SentencePieceTokenizer::shortened(std::string_view text) const {
  const std::int32_t unknown = model_->info.unknown;
  std::vector<std::int32_t> ids;
  return ShortenedText(text, reach_, [&](std::string_view part) {
    ids.clear();
    encode_as_it_is(part, ids);
    // Behind the space that models add in front.
    return !ids.empty() && ids.back() == unknown &&
           (ids.size() == 1 || (ids.size() == 2 && ids[0] == separator_));
  });
}

void SentencePieceTokenizer::encode_plain(std::string_view text,
                                          std::vector<std::int32_t>& ids) const {
  encode_as_it_is(shortened(text).text(), ids);
}

void SentencePieceTokenizer::encode_as_it_is(std::string_view text,
                                             std::vector<std::int32_t>& ids) const {
  const auto take = [](void* context, const int* pieces, std::size_t count) {
    auto& list = *static_cast<std::vector<std::int32_t>*>(context);
    list.insert(list.end(), pieces, pieces + count);
  };
  const char* problem = library().encode(model_->handle, text.data(), text.size(), take, &ids);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: a text of {} bytes cannot be encoded: {}",
                  model_file_, text.size(), replace_invalid_utf8(problem));
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  for (const std::int32_t id : ids) {
    PENTATRON_CHECK(id >= 0 && id < vocab_size(), kData,
                    "token id {} is outside the vocabulary of {} ids", id, vocab_size());
  }
  if (!options_.legacy) return decode_plain(ids);
  std::string text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto special = special_by_id_.find(ids[i]);
    if (special == special_by_id_.end()) continue;
    text += decode_plain(ids.subspan(begin, i - begin)) + " " + special->second + " ";
    begin = i + 1;
  }
  text += decode_plain(ids.subspan(begin));
  return std::string(stripped(text));
}

std::string SentencePieceTokenizer::decode_plain(std::span<const std::int32_t> ids) const {
  std::string result;
  const auto take = [](void* context, const char* text, std::size_t size) {
    static_cast<std::string*>(context)->assign(text, size);
  };
  const char* problem = library().decode(model_->handle, ids.data(), ids.size(), take, &result);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: {} ids cannot be decoded: {}", model_file_,
                  ids.size(), replace_invalid_utf8(problem));
  return result;
}

std::vector<TokenSpan> SentencePieceTokenizer::spans(std::string_view text,
                                                     std::span<const std::int32_t> ids) const {
  PENTATRON_CHECK(special_.empty() && !marks_spaces(), kUnsupported,
                  "{}: where a token stands is not known with special tokens of "
                  "--tokenizer-sentencepiece-legacy, or with "
                  "--no-tokenizer-sentencepiece-ignore-extra-whitespaces",
                  model_file_);
  const ShortenedText shorter = shortened(text);
  struct Found {
    const ShortenedText& text;
    std::vector<std::int32_t> ids;
    std::vector<TokenSpan> spans;
  } found{shorter, {}, {}};
  const auto take = [](void* context, int id, std::size_t begin, std::size_t end) {
    auto& list = *static_cast<Found*>(context);
    list.ids.push_back(id);
    list.spans.push_back({.begin = list.text.in_whole(begin), .end = list.text.in_whole(end)});
  };
  const char* problem =
      library().spans(model_->handle, shorter.text().data(), shorter.text().size(), take, &found);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: a text of {} bytes cannot be encoded: {}",
                  model_file_, text.size(), replace_invalid_utf8(problem));
  PENTATRON_CHECK(std::ranges::equal(found.ids, ids), kData, "{}: these {} ids are of another text",
                  model_file_, ids.size());
  return found.spans;
}

bool SentencePieceTokenizer::is_open(std::int32_t id) const {
  return id >= 0 && id < model_->info.size && library().kind(model_->handle, id) == 2;
}

bool SentencePieceTokenizer::is_special(std::int32_t id) const {
  if (special_by_id_.contains(id)) return true;
  return id >= 0 && id < model_->info.size && library().kind(model_->handle, id) == 1;
}

std::optional<std::int32_t> SentencePieceTokenizer::token_id(std::string_view token) const {
  const auto special = std::ranges::find(special_, token, &Special::text);
  if (special != special_.end()) return special->id;
  return known(library().find(model_->handle, token.data(), token.size()));
}

std::int64_t SentencePieceTokenizer::vocab_size() const { return vocab_size_; }

std::int32_t SentencePieceTokenizer::eod() const {
  PENTATRON_CHECK(model_->info.eos >= 0, kData, "{}: the model has no end-of-sentence piece",
                  model_file_);
  return model_->info.eos;
}

std::int32_t SentencePieceTokenizer::pad() const { return model_->info.pad; }
std::optional<std::int32_t> SentencePieceTokenizer::bos() const { return known(model_->info.bos); }
std::optional<std::int32_t> SentencePieceTokenizer::eos() const { return known(model_->info.eos); }

TokenizerDescription SentencePieceTokenizer::description() const {
  const std::vector<std::string>& special = options_.special_tokens;
  return {.class_name = std::string(kMegatronTextClass),
          .tokenizer_path = model_file_,
          .arguments = {
              {"chat_template", options_.chat_template.empty() ? "None" : options_.chat_template},
              {"ignore_extra_whitespaces", python_repr(options_.ignore_extra_whitespaces)},
              {"legacy", python_repr(options_.legacy)},
              {"special_tokens", special.empty() ? "None" : python_repr(special)}}};
}

}  // namespace pentatron::tokenizers
