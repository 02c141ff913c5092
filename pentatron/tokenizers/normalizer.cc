// SPDX-License-Identifier: Apache-2.0
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <optional>

#include "pentatron/base/format.h"
#include "pentatron/tokenizers/base64.h"
#include "pentatron/tokenizers/charsmap.h"
#include "pentatron/tokenizers/code_point_set.h"
#include "pentatron/tokenizers/grapheme.h"
#include "pentatron/tokenizers/json_fields.h"
#include "pentatron/tokenizers/split_pattern.h"
#include "pentatron/tokenizers/text_stage.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;

void append_code_point(std::string& text, char32_t code_point) {
  char bytes[U8_MAX_LENGTH];
  std::int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, static_cast<UChar32>(code_point));
  text.append(bytes, static_cast<std::size_t>(size));
}

// Calls visit(code point, its bytes) for each character; kInvalidByte for a byte that is none.
template <typename Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCodePoint c = code_point_at(text, at);
    visit(c.value, text.substr(at, c.size));
    at += c.size;
  }
}

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(std::string_view form) {
    UErrorCode status = U_ZERO_ERROR;
    if (form == "NFC") form_ = icu::Normalizer2::getNFCInstance(status);
    if (form == "NFD") form_ = icu::Normalizer2::getNFDInstance(status);
    if (form == "NFKC") form_ = icu::Normalizer2::getNFKCInstance(status);
    if (form == "NFKD") form_ = icu::Normalizer2::getNFKDInstance(status);
    PENTATRON_CHECK(form_ != nullptr && U_SUCCESS(status), kInternal, "no Unicode data for {}",
                    form);
  }

  [[nodiscard]] std::string apply(std::string_view text) const override {
    const auto ascii = [](char c) { return static_cast<std::uint8_t>(c) < 0x80; };
    if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);
    // Valid runs alone: the library would replace the other bytes.
    std::string result;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const DecodedCodePoint c = code_point_at(text, at);
      if (c.value == kInvalidByte) {
        append_valid(text.substr(begin, at - begin), result);
        result += text[at];
        begin = at + 1;
      }
      at += c.size;
    }
    append_valid(text.substr(begin), result);
    return result;
  }

 private:
  void append_valid(std::string_view text, std::string& result) const {
    if (text.empty()) return;
    std::string form;
    icu::StringByteSink<std::string> sink(&form);
    UErrorCode status = U_ZERO_ERROR;
    form_->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())),
                         sink, nullptr, status);
    PENTATRON_CHECK(U_SUCCESS(status), kData, "a text of {} bytes cannot be normalised: {}",
                    text.size(), u_errorName(status));
    result += form;
  }

  const icu::Normalizer2* form_ = nullptr;
};

// Each character for itself, as Rust's char::to_lowercase: no final sigma.
class Lowercase final : public Normalizer {
 public:
  [[nodiscard]] std::string apply(std::string_view text) const override {
    constexpr char32_t kCapitalIWithDot = 0x130;
    std::string result;
    result.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      if (c == kInvalidByte) {
        result += bytes;
      } else if (c == kCapitalIWithDot) {
        result += "i\u0307";
      } else {
        append_code_point(result, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
      }
    });
    return result;
  }
};

// Leaves out the characters of some general categories.
class WithoutCategories final : public Normalizer {
 public:
  explicit WithoutCategories(std::uint32_t mask) : mask_(mask) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result;
    result.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      if (c == kInvalidByte || (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask_) == 0) {
        result += bytes;
      }
    });
    return result;
  }

 private:
  std::uint32_t mask_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::size_t begin = text.size();
    std::size_t end = 0;
    std::size_t at = 0;
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      const bool space = c != kInvalidByte && u_isUWhiteSpace(static_cast<UChar32>(c));
      if (!space) {
        begin = std::min(begin, at);
        end = at + bytes.size();
      }
      at += bytes.size();
    });
    if (begin == text.size()) return left_ || right_ ? std::string() : std::string(text);
    const std::size_t from = left_ ? begin : 0;
    return std::string(text.substr(from, (right_ ? end : text.size()) - from));
  }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    return text.empty() ? std::string() : prefix_ + std::string(text);
  }

 private:
  std::string prefix_;
};

class ReplaceText final : public Normalizer {
 public:
  ReplaceText(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result;
    std::size_t at = 0;
    for (std::size_t found = text.find(from_); found != std::string_view::npos;
         found = text.find(from_, at)) {
      result += text.substr(at, found - at);
      result += to_;
      at = found + from_.size();
    }
    result += text.substr(at);
    return result;
  }

 private:
  std::string from_;
  std::string to_;
};

class ReplacePattern final : public Normalizer {
 public:
  ReplacePattern(std::string_view pattern, std::string to) : from_(pattern), to_(std::move(to)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result;
    std::size_t at = 0;
    std::uint64_t looks = 0;
    while (const std::optional<SplitPattern::Match> match = from_.find(text, at, looks)) {
      result += text.substr(at, match->begin - at);
      result += to_;
      at = match->end;
    }
    result += text.substr(at);
    return result;
  }

 private:
  SplitPattern from_;
  std::string to_;
};

// SentencePiece's rules as the reference library applies them: what a reader takes for one
// character is looked up whole if it is short, else code point by code point; the shortest key
// stands for all.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap rules) : rules_(std::move(rules)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    constexpr std::size_t kLongestWhole = 5;  // bytes
    std::string result;
    result.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view cluster = text.substr(at, grapheme_size(text, at));
      at += cluster.size();
      if (cluster.size() <= kLongestWhole) {
        if (const auto found = rules_.find(cluster)) {
          result += *found;
          continue;
        }
      }
      for_each_character(cluster, [&](char32_t c, std::string_view bytes) {
        result += c == kInvalidByte ? bytes : rules_.find(bytes).value_or(bytes);
      });
    }
    return result;
  }

 private:
  Charsmap rules_;
};

// What SentencePiece's "nmt" rules do beside NFKC: control characters go, more of Unicode's spaces
// and what has no width become ' '.
class NmtClean final : public Normalizer {
 public:
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result;
    result.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      if (becomes_space(c)) {
        result += ' ';
      } else if (!goes(c)) {
        result += bytes;
      }
    });
    return result;
  }

 private:
  static bool goes(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }
  static bool becomes_space(char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<NormalizerPtr> stages) : stages_(std::move(stages)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result(text);
    for (const NormalizerPtr& stage : stages_) result = stage->apply(result);
    return result;
  }

 private:
  std::vector<NormalizerPtr> stages_;
};

bool is_cjk_ideograph(char32_t c) {
  // The blocks that BERT's tokenizer names.
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& block) { return c >= block.first && c <= block.second; });
}

// clean_text: control characters go, every kind of space becomes ' '.
class BertClean final : public Normalizer {
 public:
  [[nodiscard]] std::string apply(std::string_view text) const override {
    constexpr char32_t kReplacement = 0xFFFD;
    std::string result;
    result.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      if (c == kInvalidByte || c == 0 || c == kReplacement) return;
      const bool space = c == '\t' || c == '\n' || c == '\r';
      if (!space && is_bert_control(c)) return;
      if (space || u_isUWhiteSpace(static_cast<UChar32>(c))) {
        result += ' ';
      } else {
        result += bytes;
      }
    });
    return result;
  }
};

class BertSpacedIdeographs final : public Normalizer {
 public:
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result;
    result.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      const bool ideograph = is_cjk_ideograph(c);
      if (ideograph) result += ' ';
      result += bytes;
      if (ideograph) result += ' ';
    });
    return result;
  }
};

NormalizerPtr make_replace(const json& object, std::string_view name) {
  const json& pattern = member(object, "pattern", name);
  std::string content = text_member(object, "content", name);
  if (pattern.is_object() && pattern.contains("Regex")) {
    return std::make_unique<ReplacePattern>(text_member(pattern, "Regex", name),
                                            std::move(content));
  }
  std::string from = text_member(pattern, "String", name);
  PENTATRON_CHECK(!from.empty(), kData, "{}: a replacement of the empty text", name);
  return std::make_unique<ReplaceText>(std::move(from), std::move(content));
}

NormalizerPtr make_precompiled(const json& object, std::string_view name) {
  const auto bytes = base64_decoded(text_member(object, "precompiled_charsmap", name));
  PENTATRON_CHECK(bytes, kData, "{}: the precompiled_charsmap of Precompiled is no base64", name);
  return std::make_unique<Precompiled>(Charsmap(*bytes, name));
}

NormalizerPtr make_bert(const json& object, std::string_view name) {
  BertNormalizerOptions options;
  options.clean_text = flag_member(object, "clean_text", true, name);
  options.handle_chinese_chars = flag_member(object, "handle_chinese_chars", true, name);
  options.lowercase = flag_member(object, "lowercase", true, name);
  options.strip_accents = flag_member(object, "strip_accents", options.lowercase, name);
  return make_bert_normalizer(options);
}

}  // namespace

NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options) {
  std::vector<NormalizerPtr> stages;
  if (options.clean_text) stages.push_back(std::make_unique<BertClean>());
  if (options.handle_chinese_chars) stages.push_back(std::make_unique<BertSpacedIdeographs>());
  if (options.strip_accents) {
    stages.push_back(std::make_unique<UnicodeForm>("NFD"));
    stages.push_back(std::make_unique<WithoutCategories>(U_GC_MN_MASK));
  }
  if (options.lowercase) stages.push_back(std::make_unique<Lowercase>());
  return std::make_unique<NormalizerSequence>(std::move(stages));
}

NormalizerPtr make_normalizer(const json& object, std::string_view name) {
  if (object.is_null()) return nullptr;
  const std::string type = text_member(object, "type", name);
  if (type == "Sequence") {
    std::vector<NormalizerPtr> stages;
    for (const json& stage : member(object, "normalizers", name)) {
      stages.push_back(make_normalizer(stage, name));
    }
    return stages.empty() ? nullptr : std::make_unique<NormalizerSequence>(std::move(stages));
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    return std::make_unique<UnicodeForm>(type);
  }
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<WithoutCategories>(U_GC_M_MASK);
  if (type == "Strip") {
    return std::make_unique<Strip>(flag_member(object, "strip_left", true, name),
                                   flag_member(object, "strip_right", true, name));
  }
  if (type == "Prepend") return std::make_unique<Prepend>(text_member(object, "prepend", name));
  if (type == "Replace") return make_replace(object, name);
  if (type == "BertNormalizer") return make_bert(object, name);
  if (type == "Precompiled") return make_precompiled(object, name);
  if (type == "Nmt") return std::make_unique<NmtClean>();
  PENTATRON_THROW(kUnsupported, "{}: the normaliser {} is not supported", name,
                  quoted_for_message(type));
}

}  // namespace pentatron::tokenizers
