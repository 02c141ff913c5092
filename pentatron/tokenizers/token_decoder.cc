// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/token_decoder.h"

#include <algorithm>
#include <array>
#include <optional>

#include "pentatron/base/format.h"
#include "pentatron/tokenizers/json_fields.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;

// In linear time: what Fuse has joined may be long. `from` is not empty.
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string replaced;
  std::size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    replaced.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  text = replaced.append(text, begin);
}

class ReplaceDecoder final : public TokenDecoder {
 public:
  ReplaceDecoder(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) replace_all(token, from_, to_);
  }

 private:
  std::string from_;
  std::string to_;
};

// Takes up to `start` characters off each token's front and `stop` off its end, as long as they are
// `content`.
class StripDecoder final : public TokenDecoder {
 public:
  StripDecoder(std::string content, std::int64_t start, std::int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      for (std::int64_t i = 0; i < start_ && token.starts_with(content_); ++i) {
        token.erase(0, content_.size());
      }
      for (std::int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
        token.resize(token.size() - content_.size());
      }
    }
  }

 private:
  std::string content_;
  std::int64_t start_;
  std::int64_t stop_;
};

class FuseDecoder final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens.assign(1, std::move(text));
  }
};

// Runs of <0x00> to <0xFF> become their bytes, or one U+FFFD a byte where those are no valid UTF-8.
class ByteFallbackDecoder final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (replace_invalid_utf8(bytes) == bytes) {
        result.push_back(bytes);
      } else {
        for (std::size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\uFFFD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = byte_of_token(token)) {
        bytes += *byte;
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  }
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  MetaspaceDecoder(std::string replacement, bool prepended)
      : replacement_(std::move(replacement)), prepended_(prepended) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i == 0 && prepended_ && tokens[i].starts_with(replacement_)) {
        tokens[i].erase(0, replacement_.size());
      }
      replace_all(tokens[i], replacement_, " ");
    }
  }

 private:
  std::string replacement_;
  bool prepended_;
};

class WordPieceDecoder final : public TokenDecoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        if (tokens[i].starts_with(prefix_)) {
          tokens[i].erase(0, prefix_.size());
        } else {
          tokens[i].insert(0, 1, ' ');
        }
      }
      if (cleanup_) clean_up(tokens[i]);
    }
  }

 private:
  // English punctuation loses the space before it, as in the reference library.
  static void clean_up(std::string& text) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules{
        {{" .", "."},
         {" ?", "?"},
         {" !", "!"},
         {" ,", ","},
         {" ' ", "'"},
         {" n't", "n't"},
         {" 'm", "'m"},
         {" do not", " don't"},
         {" 's", "'s"},
         {" 've", "'ve"},
         {" 're", "'re"}}};
    for (const auto& [from, to] : kRules) replace_all(text, from, to);
  }

  std::string prefix_;
  bool cleanup_;
};

class DecoderSequence final : public TokenDecoder {
 public:
  explicit DecoderSequence(std::vector<TokenDecoderPtr> stages) : stages_(std::move(stages)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (const TokenDecoderPtr& stage : stages_) stage->apply(tokens);
  }

 private:
  std::vector<TokenDecoderPtr> stages_;
};

std::int64_t count_member(const json& object, const char* key, std::string_view name) {
  const json& value = member(object, key, name);
  PENTATRON_CHECK(value.is_number_unsigned() && value.get<std::uint64_t>() < 1000, kData,
                  "{}: '{}' is no count below 1000", name, key);
  return value.get<std::int64_t>();
}

TokenDecoderPtr make_metaspace(const json& object, std::string_view name) {
  const bool prepended = has_member(object, "prepend_scheme")
                             ? text_member(object, "prepend_scheme", name) != "never"
                             : flag_member(object, "add_prefix_space", true, name);
  return std::make_unique<MetaspaceDecoder>(character_member(object, "replacement", name),
                                            prepended);
}

}  // namespace

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : {token[3], token[4]}) {
    const std::string_view digits = "0123456789ABCDEF";
    const std::size_t digit = digits.find(static_cast<char>(c >= 'a' && c <= 'f' ? c - 32 : c));
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(digit);
  }
  return static_cast<char>(value);
}

TokenDecoderPtr make_token_decoder(const json& object, std::string_view name) {
  if (object.is_null()) return nullptr;
  const std::string type = text_member(object, "type", name);
  if (type == "ByteLevel") return nullptr;
  if (type == "Sequence") {
    std::vector<TokenDecoderPtr> stages;
    for (const json& stage : member(object, "decoders", name)) {
      if (TokenDecoderPtr one = make_token_decoder(stage, name)) stages.push_back(std::move(one));
    }
    return stages.empty() ? nullptr : std::make_unique<DecoderSequence>(std::move(stages));
  }
  if (type == "Replace") {
    const json& pattern = member(object, "pattern", name);
    PENTATRON_CHECK(pattern.is_object() && pattern.contains("String"), kUnsupported,
                    "{}: a decoder that replaces by a regular expression is not supported", name);
    std::string from = text_member(pattern, "String", name);
    PENTATRON_CHECK(!from.empty(), kData, "{}: a replacement of the empty text", name);
    return std::make_unique<ReplaceDecoder>(std::move(from), text_member(object, "content", name));
  }
  if (type == "Strip") {
    return std::make_unique<StripDecoder>(character_member(object, "content", name),
                                          count_member(object, "start", name),
                                          count_member(object, "stop", name));
  }
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Metaspace") return make_metaspace(object, name);
  if (type == "WordPiece") {
    return std::make_unique<WordPieceDecoder>(text_member(object, "prefix", name),
                                              flag_member(object, "cleanup", true, name));
  }
  PENTATRON_THROW(kUnsupported, "{}: the decoder {} is not supported", name,
                  quoted_for_message(type));
}

}  // namespace pentatron::tokenizers
