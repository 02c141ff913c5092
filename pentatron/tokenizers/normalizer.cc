// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/normalizer.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "pentatron/base/format.h"
#include "pentatron/tokenizers/base64.h"
#include "pentatron/tokenizers/charsmap.h"
#include "pentatron/tokenizers/code_point_set.h"
#include "pentatron/tokenizers/grapheme.h"
#include "pentatron/tokenizers/json_fields.h"
#include "pentatron/tokenizers/split_pattern.h"

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

// The characters of a text after a normaliser, in order.
class Changes final {
 public:
  void add(std::string_view text, int change) { list_.push_back({std::string(text), change}); }
  void add(char32_t code_point, int change) {
    std::string text;
    append_code_point(text, code_point);
    list_.push_back({std::move(text), change});
  }
  // What is left out goes with the character before it, or with the begin of the text.
  void leave_out() {
    if (list_.empty()) {
      ++removed_;
    } else {
      --list_.back().change;
    }
  }
  [[nodiscard]] std::vector<TextChange>& list() { return list_; }
  void apply_to(AlignedText& text) const { text.transform(list_, removed_); }

 private:
  std::vector<TextChange> list_;
  std::size_t removed_ = 0;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(std::string_view form) : composes_(form.ends_with("C")) {
    UErrorCode status = U_ZERO_ERROR;
    if (form == "NFC") form_ = icu::Normalizer2::getNFCInstance(status);
    if (form == "NFD") form_ = icu::Normalizer2::getNFDInstance(status);
    if (form == "NFKC") form_ = icu::Normalizer2::getNFKCInstance(status);
    if (form == "NFKD") form_ = icu::Normalizer2::getNFKDInstance(status);
    canonical_ = icu::Normalizer2::getNFCInstance(status);
    PENTATRON_CHECK(form_ != nullptr && U_SUCCESS(status), kInternal, "no Unicode data for {}",
                    form);
  }

  void apply(AlignedText& text) const override {
    Changes changes;
    std::vector<Mark> run;
    for_each_character(text.text(), [&](char32_t c, std::string_view bytes) {
      if (c != kInvalidByte) return decompose(c, run);
      end_run(run, changes);
      changes.add(bytes, 0);
    });
    end_run(run, changes);
    changes.apply_to(text);
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
  struct Mark {
    char32_t value;
    int change;
    std::uint8_t combining_class;
  };

  void decompose(char32_t c, std::vector<Mark>& run) const {
    icu::UnicodeString parts;
    if (form_->getDecomposition(static_cast<UChar32>(c), parts) == 0) {
      parts = icu::UnicodeString(static_cast<UChar32>(c));
    }
    for (std::int32_t at = 0; at < parts.length(); at = parts.moveIndex32(at, 1)) {
      const UChar32 part = parts.char32At(at);
      run.push_back({.value = static_cast<char32_t>(part),
                     .change = at > 0 ? 1 : 0,
                     .combining_class = u_getCombiningClass(part)});
    }
  }

  void end_run(std::vector<Mark>& run, Changes& changes) const {
    // Marks between starters stand in the order of their classes.
    const auto starts = [](const Mark& mark) { return mark.combining_class == 0; };
    for (auto at = run.begin(); at != run.end();) {
      const auto first = std::find_if_not(at, run.end(), starts);
      at = std::find_if(first, run.end(), starts);
      std::ranges::stable_sort(first, at, {}, &Mark::combining_class);
    }
    if (composes_) compose(run);
    for (const Mark& mark : run) changes.add(mark.value, mark.change);
    run.clear();
  }

  // Each mark joins the last starter where nothing of its class or a higher one stands between.
  // What they become stands for the characters of both.
  void compose(std::vector<Mark>& run) const {
    std::size_t kept = 0;
    std::size_t starter = run.size();  // none
    for (const Mark mark : run) {
      const bool blocked = starter < kept && kept - starter > 1 &&
                           run[kept - 1].combining_class >= mark.combining_class;
      const UChar32 joined = starter < kept && !blocked
                                 ? canonical_->composePair(static_cast<UChar32>(run[starter].value),
                                                           static_cast<UChar32>(mark.value))
                                 : -1;
      if (joined >= 0) {
        run[starter].value = static_cast<char32_t>(joined);
        run[starter].change += mark.change - 1;
        continue;
      }
      run[kept] = mark;
      if (mark.combining_class == 0) starter = kept;
      ++kept;
    }
    run.resize(kept);
  }

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

  bool composes_;
  const icu::Normalizer2* form_ = nullptr;
  const icu::Normalizer2* canonical_ = nullptr;
};

// A normaliser that looks at each character by itself: visit(code point, its bytes, put), where
// put(text) is called for each character that comes of it.
template <typename Self>
class OfCharacters : public Normalizer {
 public:
  [[nodiscard]] std::string apply(std::string_view text) const final {
    std::string result;
    result.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      self().visit(c, bytes, [&result](std::string_view part) { result += part; });
    });
    return result;
  }
  void apply(AlignedText& text) const final {
    Changes changes;
    for_each_character(text.text(), [&](char32_t c, std::string_view bytes) {
      int change = 0;
      self().visit(c, bytes, [&](std::string_view part) {
        changes.add(part, change);
        change = 1;
      });
      if (change == 0) changes.leave_out();
    });
    changes.apply_to(text);
  }

 private:
  [[nodiscard]] const Self& self() const { return static_cast<const Self&>(*this); }
};

// Each character for itself, as Rust's char::to_lowercase: no final sigma.
class Lowercase final : public OfCharacters<Lowercase> {
 public:
  template <typename Put>
  void visit(char32_t c, std::string_view bytes, Put put) const {
    constexpr char32_t kCapitalIWithDot = 0x130;
    if (c == kInvalidByte) return put(bytes);
    if (c == kCapitalIWithDot) {
      put("i");
      return put("\u0307");
    }
    char lower[U8_MAX_LENGTH];
    std::int32_t size = 0;
    U8_APPEND_UNSAFE(lower, size, u_tolower(static_cast<UChar32>(c)));
    put(std::string_view(lower, static_cast<std::size_t>(size)));
  }
};

// Leaves out the characters of some general categories.
class WithoutCategories final : public OfCharacters<WithoutCategories> {
 public:
  explicit WithoutCategories(std::uint32_t mask) : mask_(mask) {}
  template <typename Put>
  void visit(char32_t c, std::string_view bytes, Put put) const {
    if (c == kInvalidByte || (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask_) == 0) put(bytes);
  }

 private:
  std::uint32_t mask_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    const auto [begin, end] = core_of(text);
    return std::string(text.substr(begin, end - begin));
  }
  void apply(AlignedText& text) const override {
    const auto [begin, end] = core_of(text.text());
    text.keep(begin, end);
  }

 private:
  [[nodiscard]] std::pair<std::size_t, std::size_t> core_of(std::string_view text) const {
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
    if (begin == text.size() && (left_ || right_)) return {0, 0};
    return {left_ ? begin : 0, right_ ? end : text.size()};
  }

  bool left_;
  bool right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    return text.empty() ? std::string() : prefix_ + std::string(text);
  }
  void apply(AlignedText& text) const override { text.prepend(prefix_); }

 private:
  std::string prefix_;
};

// Replaces matches of something.
class Replace : public Normalizer {
 public:
  explicit Replace(std::string to) : to_(std::move(to)) {}
  [[nodiscard]] std::string apply(std::string_view text) const final {
    std::string result;
    std::size_t at = 0;
    for_each_match(text, [&](std::size_t begin, std::size_t end) {
      result += text.substr(at, begin - at);
      result += to_;
      at = end;
    });
    result += text.substr(at);
    return result;
  }
  void apply(AlignedText& text) const final {
    AlignedText result = text;
    result.keep(0, 0);
    const std::span<const TokenSpan> origins(text.origins());
    std::size_t at = 0;
    const auto copy = [&](std::size_t end) {
      for (; at < end; ++at)
        result.append(std::string_view(text.text()).substr(at, 1), origins[at]);
    };
    for_each_match(text.text(), [&](std::size_t begin, std::size_t end) {
      copy(begin);
      // What stands for a match comes from its last character.
      result.append(to_, end > 0 ? origins[end - 1] : text.begin());
      at = end;
    });
    copy(text.text().size());
    text = std::move(result);
  }

 protected:
  using Visit = std::function<void(std::size_t, std::size_t)>;
  virtual void for_each_match(std::string_view text, const Visit& visit) const = 0;

 private:
  std::string to_;
};

class ReplaceText final : public Replace {
 public:
  ReplaceText(std::string from, std::string to) : Replace(std::move(to)), from_(std::move(from)) {}

 protected:
  void for_each_match(std::string_view text, const Visit& visit) const override {
    for (std::size_t at = text.find(from_); at != std::string_view::npos;
         at = text.find(from_, at + from_.size())) {
      visit(at, at + from_.size());
    }
  }

 private:
  std::string from_;
};

class ReplacePattern final : public Replace {
 public:
  ReplacePattern(std::string_view pattern, std::string to)
      : Replace(std::move(to)), from_(pattern) {}

 protected:
  void for_each_match(std::string_view text, const Visit& visit) const override {
    std::size_t at = 0;
    std::uint64_t looks = 0;
    while (const std::optional<SplitPattern::Match> match = from_.find(text, at, looks)) {
      visit(match->begin, match->end);
      at = match->end;
    }
  }

 private:
  SplitPattern from_;
};

// SentencePiece's rules as the reference library applies them: what a reader takes for one
// character is looked up whole if it is short, else code point by code point; the shortest key
// stands for all.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap rules) : rules_(std::move(rules)) {}
  [[nodiscard]] std::string apply(std::string_view text) const override {
    std::string result;
    result.reserve(text.size());
    for_each_part(text, [&result](std::string_view, std::string_view put) { result += put; });
    return result;
  }
  // Characters of a part and of what stands for it belong to each other in order; the last one of a
  // longer text is put in, the last one of a shorter text stands for the rest.
  void apply(AlignedText& text) const override {
    Changes changes;
    std::vector<TextChange>& list = changes.list();
    for_each_part(text.text(), [&](std::string_view part, std::string_view put) {
      const std::size_t before = count_of(part);
      std::size_t after = 0;
      for_each_character(put, [&](char32_t, std::string_view bytes) {
        changes.add(bytes, after++ < before ? 0 : 1);
      });
      if (after < before && !list.empty()) list.back().change -= static_cast<int>(before - after);
    });
    changes.apply_to(text);
  }

 private:
  static std::size_t count_of(std::string_view text) {
    std::size_t count = 0;
    for_each_character(text, [&](char32_t, std::string_view) { ++count; });
    return count;
  }

  // Calls visit(part of the text, what stands for it).
  template <typename Visit>
  void for_each_part(std::string_view text, Visit visit) const {
    constexpr std::size_t kLongestWhole = 5;  // bytes
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view cluster = text.substr(at, grapheme_size(text, at));
      at += cluster.size();
      if (cluster.size() <= kLongestWhole) {
        if (const auto found = rules_.find(cluster)) {
          visit(cluster, *found);
          continue;
        }
      }
      for_each_character(cluster, [&](char32_t c, std::string_view bytes) {
        visit(bytes, c == kInvalidByte ? bytes : rules_.find(bytes).value_or(bytes));
      });
    }
  }

  Charsmap rules_;
};

// What SentencePiece's "nmt" rules do beside NFKC: control characters go, more of Unicode's spaces
// and what has no width become ' '.
class NmtClean final : public OfCharacters<NmtClean> {
 public:
  template <typename Put>
  void visit(char32_t c, std::string_view bytes, Put put) const {
    if (becomes_space(c)) {
      put(" ");
    } else if (!goes(c)) {
      put(bytes);
    }
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
  void apply(AlignedText& text) const override {
    for (const NormalizerPtr& stage : stages_) stage->apply(text);
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
class BertClean final : public OfCharacters<BertClean> {
 public:
  template <typename Put>
  void visit(char32_t c, std::string_view bytes, Put put) const {
    constexpr char32_t kReplacement = 0xFFFD;
    if (c == kInvalidByte || c == 0 || c == kReplacement) return;
    const bool space = c == '\t' || c == '\n' || c == '\r';
    if (!space && is_bert_control(c)) return;
    put(space || u_isUWhiteSpace(static_cast<UChar32>(c)) ? std::string_view(" ") : bytes);
  }
};

class BertSpacedIdeographs final : public OfCharacters<BertSpacedIdeographs> {
 public:
  template <typename Put>
  void visit(char32_t c, std::string_view bytes, Put put) const {
    const bool ideograph = is_cjk_ideograph(c);
    if (ideograph) put(" ");
    put(bytes);
    if (ideograph) put(" ");
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
