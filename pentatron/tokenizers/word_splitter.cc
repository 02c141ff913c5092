// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_splitter.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "pentatron/base/format.h"
#include "pentatron/tokenizers/code_point_set.h"
#include "pentatron/tokenizers/json_fields.h"
#include "pentatron/tokenizers/pre_tokenizer.h"
#include "pentatron/tokenizers/split_pattern.h"

namespace pentatron::tokenizers {
namespace {

using nlohmann::json;

// What becomes of the matches of a splitter's pattern.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior behavior_named(const std::string& text, std::string_view name) {
  if (text == "Removed") return Behavior::kRemoved;
  if (text == "Isolated") return Behavior::kIsolated;
  if (text == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (text == "MergedWithNext") return Behavior::kMergedWithNext;
  if (text == "Contiguous") return Behavior::kContiguous;
  PENTATRON_THROW(kUnsupported, "{}: the behavior {} of a splitter is not supported", name,
                  quoted_for_message(text));
}

// A stretch of a text, and whether the pattern matched it.
struct Stretch {
  std::size_t begin;
  std::size_t end;
  bool matched;
};

std::vector<Stretch> join_stretches(const std::vector<Stretch>& stretches, Behavior behavior) {
  std::vector<Stretch> joined;
  bool before_matched = false;
  switch (behavior) {
    case Behavior::kRemoved:
      for (const Stretch& s : stretches) {
        if (!s.matched) joined.push_back(s);
      }
      break;
    case Behavior::kIsolated:
      return stretches;
    case Behavior::kContiguous:
      for (const Stretch& s : stretches) {
        if (!joined.empty() && joined.back().matched == s.matched) {
          joined.back().end = s.end;
        } else {
          joined.push_back(s);
        }
      }
      break;
    case Behavior::kMergedWithPrevious:
      for (const Stretch& s : stretches) {
        if (s.matched && !before_matched && !joined.empty()) {
          joined.back().end = s.end;
        } else {
          joined.push_back(s);
        }
        before_matched = s.matched;
      }
      break;
    case Behavior::kMergedWithNext:
      for (std::size_t i = stretches.size(); i-- > 0;) {
        const Stretch& s = stretches[i];
        if (s.matched && !before_matched && !joined.empty()) {
          joined.back().begin = s.begin;
        } else {
          joined.push_back(s);
        }
        before_matched = s.matched;
      }
      std::reverse(joined.begin(), joined.end());
      break;
  }
  return joined;
}

std::vector<TokenSpan> origins_of(const Word& word, std::size_t begin, std::size_t end) {
  if (word.origins.empty()) return {};
  const auto first = word.origins.begin();
  return {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)};
}

// Puts `text`, which comes from the word's first character, before it.
void prepend(Word& word, std::string_view text) {
  word.text.insert(0, text);
  if (word.origins.empty()) return;
  const TokenSpan first = word.origins.front();
  word.origins.insert(word.origins.begin(), text.size(), first);
}

// Base of the splitters that cut by matches of something.
class StretchSplitter : public WordSplitter {
 public:
  StretchSplitter(Behavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}

  void split(Word word, std::vector<Word>& words) const final {
    std::vector<Stretch> stretches;
    find(word.text, stretches);
    if (invert_) {
      for (Stretch& s : stretches) s.matched = !s.matched;
    }
    for (const Stretch& s : join_stretches(stretches, behavior_)) {
      words.push_back({word.text.substr(s.begin, s.end - s.begin), word.at_start && s.begin == 0,
                       origins_of(word, s.begin, s.end)});
    }
  }

 protected:
  // Stretches that cover the text in order, none of them empty.
  virtual void find(std::string_view text, std::vector<Stretch>& stretches) const = 0;
  static void add_gap(std::size_t begin, std::size_t end, std::vector<Stretch>& stretches) {
    if (end > begin) stretches.push_back({begin, end, false});
  }

 private:
  Behavior behavior_;
  bool invert_;
};

class PatternSplitter final : public StretchSplitter {
 public:
  PatternSplitter(std::string_view pattern, Behavior behavior, bool invert)
      : StretchSplitter(behavior, invert),
        known_(known_word_rule(pattern)),
        pattern_(known_ ? word_rule_pattern(*known_) : pattern) {
    // Matches leave no gaps, so these two keep every word as it is cut.
    keeps_matches_ = behavior == Behavior::kIsolated || (behavior == Behavior::kRemoved && invert);
  }

  [[nodiscard]] std::optional<WordRule> rule() const override {
    return keeps_matches_ ? known_ : std::nullopt;
  }

 protected:
  void find(std::string_view text, std::vector<Stretch>& stretches) const override {
    std::size_t at = 0;
    std::uint64_t looks = 0;
    while (const std::optional<SplitPattern::Match> match = pattern_.find(text, at, looks)) {
      add_gap(at, match->begin, stretches);
      stretches.push_back({match->begin, match->end, true});
      at = match->end;
    }
    add_gap(at, text.size(), stretches);
  }

 private:
  std::optional<WordRule> known_;
  bool keeps_matches_ = false;
  SplitPattern pattern_;
};

class TextSplitter final : public StretchSplitter {
 public:
  TextSplitter(std::string pattern, Behavior behavior, bool invert)
      : StretchSplitter(behavior, invert), pattern_(std::move(pattern)) {}

 protected:
  void find(std::string_view text, std::vector<Stretch>& stretches) const override {
    std::size_t at = 0;
    for (std::size_t found = text.find(pattern_); found != std::string_view::npos;
         found = text.find(pattern_, at)) {
      add_gap(at, found, stretches);
      at = found + pattern_.size();
      stretches.push_back({found, at, true});
    }
    add_gap(at, text.size(), stretches);
  }

 private:
  std::string pattern_;
};

// Matches are single characters of a kind.
class CharacterSplitter final : public StretchSplitter {
 public:
  using Test = bool (*)(char32_t);
  CharacterSplitter(Test test, Behavior behavior) : StretchSplitter(behavior, false), test_(test) {}

 protected:
  void find(std::string_view text, std::vector<Stretch>& stretches) const override {
    std::size_t gap = 0;
    for (std::size_t at = 0; at < text.size();) {
      const DecodedCodePoint c = code_point_at(text, at);
      if (c.value != kInvalidByte && test_(c.value)) {
        add_gap(gap, at, stretches);
        stretches.push_back({at, at + c.size, true});
        gap = at + c.size;
      }
      at += c.size;
    }
    add_gap(gap, text.size(), stretches);
  }

 private:
  Test test_;
};

bool is_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }
bool is_number(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0; }
class ByteLevelSplitter final : public WordSplitter {
 public:
  ByteLevelSplitter(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  void split(Word word, std::vector<Word>& words) const override {
    const DecodedCodePoint first = code_point_at(word.text, 0);
    if (add_prefix_space_ && (first.value == kInvalidByte || !is_space(first.value))) {
      prepend(word, " ");
    }
    if (!use_regex_) {
      words.push_back(std::move(word));
      return;
    }
    PreTokenizer cut(word.text);
    bool at_start = word.at_start;
    std::size_t at = 0;
    for (std::string_view part; cut.next(part);) {
      words.push_back({std::string(part), at_start, origins_of(word, at, at + part.size())});
      at += part.size();
      at_start = false;
    }
  }

  [[nodiscard]] std::optional<WordRule> rule() const override {
    return use_regex_ && !add_prefix_space_ ? std::optional(WordRule::kGpt2) : std::nullopt;
  }
  [[nodiscard]] bool keeps_words() const override { return !use_regex_ && !add_prefix_space_; }

 private:
  bool add_prefix_space_;
  bool use_regex_;
};

class MetaspaceSplitter final : public WordSplitter {
 public:
  enum class Scheme { kAlways, kFirst, kNever };
  MetaspaceSplitter(std::string replacement, Scheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split),
        splitter_(replacement_, Behavior::kMergedWithNext, false) {}

  void split(Word word, std::vector<Word>& words) const override {
    std::string text;
    std::vector<TokenSpan> origins;
    for (std::size_t at = 0; at < word.text.size(); ++at) {
      const std::string_view put = word.text[at] == ' ' ? std::string_view(replacement_)
                                                        : std::string_view(&word.text[at], 1);
      text += put;
      if (!word.origins.empty()) origins.insert(origins.end(), put.size(), word.origins[at]);
    }
    word.text = std::move(text);
    word.origins = std::move(origins);
    const bool leads = scheme_ == Scheme::kAlways || (scheme_ == Scheme::kFirst && word.at_start);
    if (leads && !word.text.starts_with(replacement_)) prepend(word, replacement_);
    if (split_) {
      splitter_.split(std::move(word), words);
    } else {
      words.push_back(std::move(word));
    }
  }

 private:
  std::string replacement_;
  Scheme scheme_;
  bool split_;
  TextSplitter splitter_;
};

class SplitterSequence final : public WordSplitter {
 public:
  explicit SplitterSequence(std::vector<WordSplitterPtr> stages) : stages_(std::move(stages)) {}
  void split(Word word, std::vector<Word>& words) const override {
    std::vector<Word> from;
    from.push_back(std::move(word));
    std::vector<Word> to;
    for (const WordSplitterPtr& stage : stages_) {
      to.clear();
      for (Word& one : from) stage->split(std::move(one), to);
      std::swap(from, to);
    }
    std::move(from.begin(), from.end(), std::back_inserter(words));
  }

  [[nodiscard]] std::optional<WordRule> rule() const override {
    std::optional<WordRule> only;
    for (const WordSplitterPtr& stage : stages_) {
      if (stage->keeps_words()) continue;
      if (only) return std::nullopt;
      only = stage->rule();
      if (!only) return std::nullopt;
    }
    return only;
  }
  [[nodiscard]] bool keeps_words() const override {
    return std::all_of(stages_.begin(), stages_.end(),
                       [](const WordSplitterPtr& stage) { return stage->keeps_words(); });
  }

 private:
  std::vector<WordSplitterPtr> stages_;
};

WordSplitterPtr make_split(const json& object, std::string_view name) {
  const Behavior behavior = behavior_named(text_member(object, "behavior", name), name);
  const bool invert = flag_member(object, "invert", false, name);
  const json& pattern = member(object, "pattern", name);
  if (pattern.is_object() && pattern.contains("Regex")) {
    return std::make_unique<PatternSplitter>(text_member(pattern, "Regex", name), behavior, invert);
  }
  std::string text = text_member(pattern, "String", name);
  PENTATRON_CHECK(!text.empty(), kData, "{}: a splitter by the empty text", name);
  return std::make_unique<TextSplitter>(std::move(text), behavior, invert);
}

WordSplitterPtr make_metaspace(const json& object, std::string_view name) {
  using Scheme = MetaspaceSplitter::Scheme;
  Scheme scheme =
      flag_member(object, "add_prefix_space", true, name) ? Scheme::kAlways : Scheme::kNever;
  if (has_member(object, "prepend_scheme")) {
    const std::string text = text_member(object, "prepend_scheme", name);
    PENTATRON_CHECK(text == "always" || text == "first" || text == "never", kUnsupported,
                    "{}: the prepend_scheme {} is not supported", name, quoted_for_message(text));
    scheme = text == "always" ? Scheme::kAlways : text == "first" ? Scheme::kFirst : Scheme::kNever;
  }
  return std::make_unique<MetaspaceSplitter>(character_member(object, "replacement", name), scheme,
                                             flag_member(object, "split", true, name));
}

}  // namespace

WordSplitterPtr make_bert_word_splitter() {
  std::vector<WordSplitterPtr> stages;
  stages.push_back(std::make_unique<CharacterSplitter>(is_space, Behavior::kRemoved));
  stages.push_back(std::make_unique<CharacterSplitter>(is_bert_punctuation, Behavior::kIsolated));
  return std::make_unique<SplitterSequence>(std::move(stages));
}

WordSplitterPtr make_pattern_splitter(std::string_view pattern, bool drop_gaps) {
  return std::make_unique<PatternSplitter>(
      pattern, drop_gaps ? Behavior::kRemoved : Behavior::kIsolated, drop_gaps);
}

WordSplitterPtr make_word_splitter(const json& object, std::string_view name) {
  if (object.is_null()) return nullptr;
  const std::string type = text_member(object, "type", name);
  if (type == "Sequence") {
    std::vector<WordSplitterPtr> stages;
    for (const json& stage : member(object, "pretokenizers", name)) {
      if (WordSplitterPtr one = make_word_splitter(stage, name)) stages.push_back(std::move(one));
    }
    return std::make_unique<SplitterSequence>(std::move(stages));
  }
  if (type == "Split") return make_split(object, name);
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelSplitter>(flag_member(object, "add_prefix_space", true, name),
                                               flag_member(object, "use_regex", true, name));
  }
  if (type == "Metaspace") return make_metaspace(object, name);
  if (type == "BertPreTokenizer") return make_bert_word_splitter();
  if (type == "Whitespace") {
    // \w+|[^\w\s]+ with the word characters of Rust's regular expressions.
    constexpr std::string_view kWords = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+)"
                                        R"(|[^\s\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+)";
    return std::make_unique<PatternSplitter>(kWords, Behavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterSplitter>(is_space, Behavior::kRemoved);
  }
  if (type == "Digits") {
    const bool each = flag_member(object, "individual_digits", false, name);
    return std::make_unique<CharacterSplitter>(is_number,
                                               each ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    const std::string behavior =
        has_member(object, "behavior") ? text_member(object, "behavior", name) : "Isolated";
    return std::make_unique<CharacterSplitter>(is_bert_punctuation, behavior_named(behavior, name));
  }
  if (type == "CharDelimiterSplit") {
    return std::make_unique<TextSplitter>(character_member(object, "delimiter", name),
                                          Behavior::kRemoved, false);
  }
  PENTATRON_THROW(kUnsupported, "{}: the pre-tokeniser {} is not supported", name,
                  quoted_for_message(type));
}

}  // namespace pentatron::tokenizers
