// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pentatron/tokenizers/char_kinds.h"
#include "pentatron/tokenizers/word_rules.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

// A word takes a few nanoseconds: calls inside would be a good part of them.
#define PENTATRON_INLINE [[nodiscard, gnu::always_inline]] inline

namespace pentatron::tokenizers {

// Cuts a text into the words of a WordRule, one after the other, as its regular expression would:
// ASCII by look-ups and sixteen letters at a time, other characters by CharKinds. Nothing is kept
// between words and nothing backtracks: each character is looked at a bounded number of times.
// Bytes that are not part of valid UTF-8 are symbols (what only negated classes hold).
// `kCounted`: counts its looks, for tests.
template <bool kCounted>
class BasicWordScanner final {
 public:
  // `text` must outlive the object.
  explicit BasicWordScanner(std::string_view text)
      : data_(reinterpret_cast<const std::uint8_t*>(text.data())),
        size_(text.size()),
        kinds_(CharKinds::table()) {}

  // End of the word that begins at `at` < text.size(), a border of words.
  template <WordRule kRule>
  PENTATRON_INLINE std::size_t word_end(std::size_t at) const {
    if constexpr (kRule == WordRule::kGpt2) {
      return gpt2_word(at);
    } else if constexpr (kRule == WordRule::kO200k || kRule == WordRule::kMegatronV2) {
      return cased_word<kRule>(at);
    } else {
      return plain_word<kRule>(at);
    }
  }

  // Characters, or stretches of sixteen bytes, looked at so far.
  [[nodiscard]] std::uint64_t looks() const { return looks_; }

 private:
  using Char = CharKinds::Char;

  void look() const {
    if constexpr (kCounted) ++looks_;
  }

  PENTATRON_INLINE Char char_at(std::size_t at) const {
    look();
    return kinds_.at(data_, at, size_);
  }
  // Flags at `at`, none at the end of the text.
  [[nodiscard]] Char char_or_end(std::size_t at) const {
    return at < size_ ? char_at(at) : Char{0, 0};
  }

  // End of the run of characters at `at` with any flag of `flags`.
  [[nodiscard]] std::size_t run_with(std::size_t at, std::uint8_t flags) const {
    while (at < size_) {
      const Char c = char_at(at);
      if ((c.flags & flags) == 0) break;
      at += c.size;
    }
    return at;
  }
  // End of the run of symbols: neither letters nor numbers nor spaces.
  [[nodiscard]] std::size_t run_of_symbols(std::size_t at) const {
    for (;;) {
      for (; at < size_ && kAsciiKinds[data_[at]] == 0; ++at) look();
      if (at >= size_ || data_[at] < 0x80) return at;
      const Char c = char_at(at);
      if ((c.flags & char_kind::kWordOrSpace) != 0) return at;
      at += c.size;
    }
  }

  // End of the run of ASCII letters (with `kAnyCase`; else small ones) at `at`.
  template <bool kAnyCase>
  PENTATRON_INLINE std::size_t ascii_letters(std::size_t at) const {
#ifdef __SSE2__
    const __m128i case_bit = _mm_set1_epi8(kAnyCase ? 0x20 : 0);
    const __m128i first = _mm_set1_epi8('a');
    const __m128i last = _mm_set1_epi8('z' - 'a');
    while (at + 16 <= size_) {
      look();
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data_ + at));
      const __m128i offset = _mm_sub_epi8(_mm_or_si128(bytes, case_bit), first);
      const auto letters = static_cast<std::uint32_t>(
          _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(offset, last), offset)));
      if (letters != 0xFFFF) return at + static_cast<std::size_t>(std::countr_one(letters));
      at += 16;
    }
#endif
    constexpr std::uint8_t kFlag = kAnyCase ? char_kind::kLetter : char_kind::kLower;
    for (; at < size_ && (kAsciiKinds[data_[at]] & kFlag) != 0; ++at) look();
    return at;
  }
  // End of the run of letters at `at`, or of the flags of kLower.
  template <std::uint8_t kFlag>
  PENTATRON_INLINE std::size_t letters_end(std::size_t at) const {
    for (;;) {
      at = ascii_letters<kFlag == char_kind::kLetter>(at);
      if (at >= size_ || data_[at] < 0x80) [[likely]] {
        return at;
      }
      const std::size_t end = other_letters<kFlag>(at);
      if (end == at || end >= size_ || data_[end] >= 0x80) return end;
      at = end;
    }
  }
  // End of the run at `at` of characters beyond ASCII with the flag.
  template <std::uint8_t kFlag>
  [[nodiscard, gnu::noinline]] std::size_t other_letters(std::size_t at) const {
    while (at < size_ && data_[at] >= 0x80) {
      const Char c = char_at(at);
      if ((c.flags & kFlag) == 0) break;
      at += c.size;
    }
    return at;
  }

  // End of the word of white space at `at`: the whole run at the end of the text, else the run
  // without its last character (which may lead the next word), but at least one character.
  [[nodiscard]] std::size_t spaces_end(std::size_t at) const {
    std::size_t last = at;
    std::size_t end = at + char_at(at).size;
    while (end < size_) {
      const Char c = char_at(end);
      if ((c.flags & char_kind::kSpace) == 0) return last == at ? end : last;
      last = end;
      end += c.size;
    }
    return end;
  }

  // The same, but a run with line ends is cut after the last of them. `kWholeAtEnd`: not where
  // the run ends the text.
  template <bool kWholeAtEnd>
  [[nodiscard]] std::size_t spaces_to_newline(std::size_t at) const {
    std::size_t last = at;
    std::size_t end = at;
    std::size_t after_newline = at;
    while (end < size_) {
      const Char c = char_at(end);
      if ((c.flags & char_kind::kSpace) == 0) break;
      last = end;
      end += c.size;
      if ((c.flags & char_kind::kNewline) != 0) after_newline = end;
    }
    if (kWholeAtEnd && end == size_) return end;
    if (after_newline > at) return after_newline;
    return end == size_ || last == at ? end : last;
  }

  // End of 's, 't, 'm, 'd, 're, 've or 'll at `at`; `at` if there is none. Any case of letters
  // takes the long s too, the case variant of s outside ASCII.
  template <bool kAnyCase>
  [[nodiscard]] std::size_t contraction_end(std::size_t at) const {
    if (at + 1 >= size_ || data_[at] != '\'') return at;
    const auto letter = [&](std::size_t i) {
      const std::uint8_t c = i < size_ ? data_[i] : 0;
      return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<std::uint8_t>(c | 0x20) : c;
    };
    switch (letter(at + 1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return at + 2;
      case 'r':
      case 'v':
        return letter(at + 2) == 'e' ? at + 3 : at;
      case 'l':
        return letter(at + 2) == 'l' ? at + 3 : at;
      case 0xC5:
        return kAnyCase && letter(at + 2) == 0xBF ? at + 3 : at;
      default:
        return at;
    }
  }

  // ' ?' before a run of letters, numbers or symbols; white space.
  PENTATRON_INLINE std::size_t gpt2_word(std::size_t at) const {
    using namespace char_kind;
    std::size_t body = at;
    std::uint8_t flags = kAsciiKinds[data_[at]];
    if (data_[at] == ' ') {
      if (at + 1 == size_) return size_;
      body = at + 1;
      flags = kAsciiKinds[data_[body]];
    } else if (data_[at] == '\'') {
      const std::size_t end = contraction_end<false>(at);
      if (end > at) return end;
    }
    if ((flags & kLetter) != 0) return letters_end<kLetter>(body + 1);
    const Char c = char_at(body);
    if ((c.flags & kLetter) != 0) return letters_end<kLetter>(body + c.size);
    if ((c.flags & kNumber) != 0) return run_with(body + c.size, kNumber);
    if ((c.flags & kSpace) != 0) return spaces_end(at);
    return run_of_symbols(body + c.size);
  }

  template <WordRule kRule>
  [[nodiscard]] std::size_t numbers_end(std::size_t at, std::size_t first_size) const {
    constexpr int kLimit =
        kRule == WordRule::kCl100k || kRule == WordRule::kLlama3 || kRule == WordRule::kO200k ? 3
                                                                                              : 1;
    at += first_size;
    for (int taken = 1; taken < kLimit; ++taken) {
      const Char c = char_or_end(at);
      if ((c.flags & char_kind::kNumber) == 0) break;
      at += c.size;
    }
    return at;
  }

  // What follows the letters' alternatives: numbers, symbols with the line ends (`kSlash`: and
  // slashes) after them, white space. `c`: the character at `at`.
  template <WordRule kRule, bool kSlash>
  [[nodiscard]] std::size_t other_word(std::size_t at, Char c) const {
    using namespace char_kind;
    if ((c.flags & kNumber) != 0) return numbers_end<kRule>(at, c.size);
    std::size_t symbols = at;
    if (data_[at] == ' ' && at + 1 < size_) symbols = at + 1;
    if ((char_at(symbols).flags & kWordOrSpace) == 0) {
      std::size_t end = run_of_symbols(symbols);
      while (end < size_ &&
             (data_[end] == '\n' || data_[end] == '\r' || (kSlash && data_[end] == '/'))) {
        ++end;
      }
      return end;
    }
    return spaces_to_newline<kRule == WordRule::kCl100k>(at);
  }

  // [^\r\n\p{L}\p{N}]?\p{L}+ and what follows it.
  template <WordRule kRule>
  PENTATRON_INLINE std::size_t plain_word(std::size_t at) const {
    using namespace char_kind;
    if (kRule != WordRule::kMegatronV1 && data_[at] == '\'') {
      const std::size_t end = contraction_end<true>(at);
      if (end > at) return end;
    }
    const Char c = char_at(at);
    if ((c.flags & kLetter) != 0) return letters_end<kLetter>(at + c.size);
    const std::size_t body = at + c.size;
    if ((c.flags & (kNumber | kNewline)) == 0 && body < size_) {
      const Char next = char_at(body);
      if ((next.flags & kLetter) != 0) return letters_end<kLetter>(body + next.size);
    }
    return other_word<kRule, false>(at, c);
  }

  // Where U*W+ or, failing that, U+W* ends that begins at `at`, with U = kUpper and W = kLower;
  // `at` if neither matches. Of a run of U that no W follows, U*W+ takes what ends with a W.
  template <bool kEndsLower>
  [[nodiscard]] std::size_t cased_letters(std::size_t at) const {
    using namespace char_kind;
    std::size_t end = at;
    std::size_t after_lower = at;
    while (end < size_) {
      const Char c = char_at(end);
      if ((c.flags & kUpper) == 0) break;
      end += c.size;
      if ((c.flags & kLower) != 0) after_lower = end;
    }
    if (!kEndsLower) return end;
    const std::size_t lower = letters_end<kLower>(end);
    return lower > end ? lower : after_lower;
  }

  // The two alternatives of words by case, each with and without the character before the letters.
  template <WordRule kRule>
  [[nodiscard]] std::size_t cased_word(std::size_t at) const {
    using namespace char_kind;
    const Char c = char_at(at);
    const bool prefix = (c.flags & (kLetter | kNumber | kNewline)) == 0;
    const bool body = (c.flags & (kUpper | kLower)) != 0;
    const std::size_t after = at + c.size;
    std::size_t end = at;
    const auto found = [&](std::size_t begin, std::size_t match) {
      if (match <= begin) return false;
      end = match;
      return true;
    };
    if ((prefix && found(after, cased_letters<true>(after))) ||
        (body && found(at, cased_letters<true>(at))) ||
        (prefix && found(after, cased_letters<false>(after))) ||
        (body && found(at, cased_letters<false>(at)))) {
      return kRule == WordRule::kO200k ? contraction_end<true>(end) : end;
    }
    return other_word<kRule, true>(at, c);
  }

  const std::uint8_t* data_;
  std::size_t size_;
  const CharKinds& kinds_;
  mutable std::uint64_t looks_ = 0;
};

using WordScanner = BasicWordScanner<false>;

}  // namespace pentatron::tokenizers

#undef PENTATRON_INLINE
