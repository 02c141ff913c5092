// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_vocabulary.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/printable.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {
namespace {

// A printable, short form of outside text for messages.
std::string shown(std::string_view text) { return printable(text, 60); }

// Input of the JSON reader that counts lines, so that errors in the content have a place too.
class LineCounter final {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, std::size_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }
  bool operator!=(const LineCounter& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* line_;
};

// Collects {"token": id, ...}; stops at the first thing that is not of this form.
class VocabHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  struct Entry {
    std::string bytes;
    std::uint64_t id;
    std::size_t line;
  };

  VocabHandler(std::string_view name, const std::size_t* line) : name_(name), line_(line) {}

  std::vector<Entry>& entries() { return entries_; }

  bool null() override { return refuse("null"); }
  bool boolean(bool /*value*/) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return refuse("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return refuse("a number with a fraction or out of range");
  }
  bool string(string_t& /*value*/) override { return refuse("a string"); }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }
  bool start_array(std::size_t /*size*/) override { return refuse("an array"); }
  bool end_array() override { return refuse("an array"); }
  bool end_object() override { return true; }

  bool start_object(std::size_t /*size*/) override {
    if (std::exchange(open_, true)) return refuse("an object");
    return true;
  }

  bool key(string_t& value) override {
    key_line_ = *line_;
    PENTATRON_CHECK(value.size() <= BpeVocabulary::kMaxTokenBytes, kData,
                    "{}:{}: a token has {} bytes, at most {} are allowed", name_, key_line_,
                    value.size(), BpeVocabulary::kMaxTokenBytes);
    auto bytes = visible_to_bytes(value);
    PENTATRON_CHECK(bytes && !bytes->empty(), kData,
                    "{}:{}: token '{}' must be one or more characters of GPT-2's byte alphabet",
                    name_, key_line_, shown(value));
    bytes_ = std::move(*bytes);
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (!open_) return refuse("a number");
    PENTATRON_CHECK(entries_.size() < static_cast<std::size_t>(BpeVocabulary::kMaxTokens), kData,
                    "{}:{}: more than {} tokens", name_, key_line_, BpeVocabulary::kMaxTokens);
    entries_.push_back({std::move(bytes_), value, key_line_});
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& last_token,
                   const nlohmann::json::exception& /*error*/) override {
    PENTATRON_THROW(kData, "{}:{}: not valid JSON near '{}'; expected one object of token: id",
                    name_, *line_, shown(last_token));
  }

 private:
  bool refuse(std::string_view what) const {
    PENTATRON_THROW(kData, "{}:{}: expected one object of token: id with ids from 0, got {}", name_,
                    open_ && key_line_ != 0 ? key_line_ : *line_, what);
  }

  std::string_view name_;
  const std::size_t* line_;
  std::size_t key_line_ = 0;
  bool open_ = false;
  std::string bytes_;
  std::vector<Entry> entries_;
};

std::vector<std::string> parse_vocab(std::string_view json, std::string_view name) {
  std::size_t line = 1;
  VocabHandler handler(name, &line);
  const LineCounter begin(json.data(), &line);
  const LineCounter end(json.data() + json.size(), &line);
  const bool read = nlohmann::json::sax_parse(begin, end, &handler);
  PENTATRON_CHECK(read, kData, "{}:{}: not one JSON object of token: id", name, line);
  std::vector<VocabHandler::Entry>& entries = handler.entries();
  std::vector<std::string> tokens(entries.size());
  for (VocabHandler::Entry& entry : entries) {
    PENTATRON_CHECK(entry.id < entries.size(), kData,
                    "{}:{}: token '{}' has id {}, but {} tokens must have the ids 0 to {} without "
                    "holes",
                    name, entry.line, shown(bytes_to_visible(entry.bytes)), entry.id,
                    entries.size(), entries.size() - 1);
    PENTATRON_CHECK(tokens[entry.id].empty(), kData, "{}:{}: id {} is given to '{}' and to '{}'",
                    name, entry.line, entry.id, shown(bytes_to_visible(tokens[entry.id])),
                    shown(bytes_to_visible(entry.bytes)));
    tokens[entry.id] = std::move(entry.bytes);
  }
  return tokens;
}

}  // namespace

BpeVocabulary BpeVocabulary::load(const std::filesystem::path& vocab_file,
                                  const std::filesystem::path& merge_file,
                                  std::string_view eod_token) {
  const std::string vocab = read_text_file(vocab_file, kMaxFileBytes);
  const std::string merges = read_text_file(merge_file, kMaxFileBytes);
  return parse(vocab, vocab_file.string(), merges, merge_file.string(), eod_token);
}

BpeVocabulary BpeVocabulary::parse(std::string_view vocab_json, std::string_view vocab_name,
                                   std::string_view merges_txt, std::string_view merges_name,
                                   std::string_view eod_token) {
  BpeVocabulary vocabulary;
  vocabulary.set_tokens(parse_vocab(vocab_json, vocab_name), vocab_name, eod_token);
  vocabulary.parse_merges(merges_txt, merges_name, vocabulary.token_index(vocab_name));
  return vocabulary;
}

BpeVocabulary BpeVocabulary::with_merges(std::string_view merges_txt,
                                         std::string_view merges_name) const {
  BpeVocabulary vocabulary;
  vocabulary.tokens_ = tokens_;
  vocabulary.byte_ids_ = byte_ids_;
  vocabulary.eod_ = eod_;
  vocabulary.parse_merges(merges_txt, merges_name, token_index(merges_name));
  return vocabulary;
}

BpeVocabulary BpeVocabulary::from_parts(
    std::vector<std::string> tokens,
    const std::vector<std::pair<std::int32_t, std::int32_t>>& merges, std::string_view eod_token) {
  constexpr std::string_view kName = "vocabulary";
  BpeVocabulary vocabulary;
  vocabulary.set_tokens(std::move(tokens), kName, eod_token);
  const Index index = vocabulary.token_index(kName);
  vocabulary.reserve_merges(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    PENTATRON_CHECK(std::min(left, right) >= 0 && std::max(left, right) < vocabulary.size(), kData,
                    "merge {} joins ids {} and {}, but there are {} tokens", rank, left, right,
                    vocabulary.size());
    vocabulary.add_merge(left, right, index, "merges", rank + 1);
  }
  return vocabulary;
}

void BpeVocabulary::set_tokens(std::vector<std::string> tokens, std::string_view name,
                               std::string_view eod_token) {
  PENTATRON_CHECK(std::ssize(tokens) <= kMaxTokens, kData, "{}: {} tokens, at most {} are allowed",
                  name, tokens.size(), kMaxTokens);
  tokens_ = std::move(tokens);
  byte_ids_.fill(-1);
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.size() == 1) {
      byte_ids_[static_cast<std::uint8_t>(token[0])] = static_cast<std::int32_t>(id);
    }
    if (token == eod_token) eod_ = static_cast<std::int32_t>(id);
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    PENTATRON_CHECK(byte_ids_[byte] >= 0, kData,
                    "{}: the byte alphabet is not complete: no token for byte 0x{:02X} ('{}'); a "
                    "byte-level BPE vocabulary has all 256",
                    name, byte, bytes_to_visible(std::string(1, static_cast<char>(byte))));
  }
  PENTATRON_CHECK(eod_ >= 0, kData, "{}: no end-of-document token '{}' among {} tokens", name,
                  eod_token, tokens_.size());
}

BpeVocabulary::Index BpeVocabulary::token_index(std::string_view name) const {
  Index index;
  index.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const auto [at, fresh] = index.emplace(tokens_[id], static_cast<std::int32_t>(id));
    PENTATRON_CHECK(fresh, kData, "{}: token '{}' has two ids, {} and {}", name,
                    shown(bytes_to_visible(tokens_[id])), at->second, id);
  }
  return index;
}

void BpeVocabulary::reserve_merges(std::size_t count) {
  table_.reserve(count);
  merges_.reserve(count);
}

void BpeVocabulary::add_merge(std::int32_t left, std::int32_t right, const Index& index,
                              std::string_view name, std::size_t line) {
  const std::uint64_t key = MergeTable::pair_key(left, right);
  const std::string joined = token(left) + token(right);
  const auto product = index.find(joined);
  PENTATRON_CHECK(product != index.end(), kData,
                  "{}:{}: the merge's product '{}' is not in the vocabulary: do --vocab-file and "
                  "--merge-file belong together?",
                  name, line, shown(bytes_to_visible(joined)));
  const bool fresh = table_.add({key, static_cast<std::uint32_t>(merges_.size()), product->second});
  PENTATRON_CHECK(fresh, kData, "{}:{}: merge '{} {}' stands twice", name, line,
                  shown(bytes_to_visible(token(left))), shown(bytes_to_visible(token(right))));
  merges_.push_back(key);
}

void BpeVocabulary::parse_merges(std::string_view text, std::string_view name, const Index& index) {
  const auto num_lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  PENTATRON_CHECK(num_lines <= static_cast<std::size_t>(kMaxTokens), kData,
                  "{}: {} lines, at most {} are allowed", name, num_lines, kMaxTokens);
  reserve_merges(num_lines);
  std::size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    // Only the first line is a comment: a later one that begins with '#' is a merge of '#'.
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    PENTATRON_CHECK(space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                        line.find(' ', space + 1) == std::string_view::npos,
                    kData, "{}:{}: expected two tokens with one space between, got '{}'", name,
                    line_number, shown(line));
    PENTATRON_CHECK(line.size() <= 2 * kMaxTokenBytes, kData,
                    "{}:{}: a merge of {} bytes, at most {} are allowed", name, line_number,
                    line.size(), 2 * kMaxTokenBytes);
    std::array<std::int32_t, 2> parts{};
    const std::array<std::string_view, 2> texts{line.substr(0, space), line.substr(space + 1)};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto bytes = visible_to_bytes(texts[i]);
      const auto found = bytes ? index.find(*bytes) : index.end();
      PENTATRON_CHECK(
          found != index.end(), kData,
          "{}:{}: '{}' is not in the vocabulary: do --vocab-file and --merge-file belong "
          "together?",
          name, line_number, shown(texts[i]));
      parts[i] = found->second;
    }
    add_merge(parts[0], parts[1], index, name, line_number);
  }
}

std::pair<std::int32_t, std::int32_t> BpeVocabulary::merge(std::size_t rank) const {
  const std::uint64_t key = merges_.at(rank);
  return {static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xFFFFFFFF)};
}

std::vector<std::int32_t> BpeVocabulary::unmade_tokens() const {
  std::vector<bool> made(tokens_.size(), false);
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const auto [left, right] = merge(rank);
    made[static_cast<std::size_t>(table_.find(left, right)->product)] = true;
  }
  std::vector<std::int32_t> unmade;
  for (std::int32_t id = 0; id < size(); ++id) {
    if (token(id).size() > 1 && id != eod_ && !made[static_cast<std::size_t>(id)]) {
      unmade.push_back(id);
    }
  }
  return unmade;
}

std::string BpeVocabulary::vocab_json() const {
  std::string json = "{";
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (id != 0) json += ",";
    json += nlohmann::json(bytes_to_visible(tokens_[id])).dump() + ":" + std::to_string(id);
  }
  return json + "}";
}

std::string BpeVocabulary::merges_txt() const {
  std::string text = "#version: 0.2\n";
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const auto [left, right] = merge(rank);
    text += bytes_to_visible(token(left)) + " " + bytes_to_visible(token(right)) + "\n";
  }
  return text;
}

void BpeVocabulary::save(const std::filesystem::path& vocab_file,
                         const std::filesystem::path& merge_file) const {
  // Both are complete on disk before either name changes, and Ctrl-C changes both or none.
  AtomicFile vocab(vocab_file);
  AtomicFile merges(merge_file);
  vocab.write(vocab_json());
  merges.write(merges_txt());
  vocab.sync();
  merges.sync();
  const HoldStop together;
  vocab.commit();
  merges.commit();
}

std::string BpeVocabulary::identity_hash() const {
  Sha256 hash;
  hash.update(fmt::format("byte-level bpe {} {} {}\n", tokens_.size(), merges_.size(), eod_));
  for (const std::string& token : tokens_) {
    hash.update(std::to_string(token.size()) + ":");
    hash.update(token);
  }
  for (const std::uint64_t pair : merges_) hash.update(std::to_string(pair) + ",");
  return hash.hex_digest();
}

}  // namespace pentatron::tokenizers
