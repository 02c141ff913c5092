// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/pre_tokenizer.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <array>

namespace pentatron::tokenizers {
namespace {

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = letter                   ? CharClass::kLetter
                 : (c >= '0' && c <= '9') ? CharClass::kNumber
                 : space                  ? CharClass::kSpace
                                          : CharClass::kOther;
  }
  return classes;
}

// Most text is ASCII; the rest goes through ICU's two-stage property tables.
constexpr std::array<CharClass, 128> kAsciiClasses = make_ascii_classes();

}  // namespace

CharClass char_class(char32_t code_point) {
  if (code_point < kAsciiClasses.size()) return kAsciiClasses[code_point];
  const auto c = static_cast<UChar32>(code_point);
  const std::uint32_t category = U_GET_GC_MASK(c);
  if ((category & U_GC_L_MASK) != 0) return CharClass::kLetter;
  if ((category & U_GC_N_MASK) != 0) return CharClass::kNumber;
  // White_Space characters are separators or controls.
  if ((category & (U_GC_Z_MASK | U_GC_CC_MASK)) != 0 && u_isUWhiteSpace(c)) {
    return CharClass::kSpace;
  }
  return CharClass::kOther;
}

PreTokenizer::Symbol PreTokenizer::symbol_at(std::size_t position) {
  ++steps_;
  const auto* data = reinterpret_cast<const std::uint8_t*>(text_.data()) + position;
  if (*data < 0x80) return {kAsciiClasses[*data], 1};
  const std::size_t left = text_.size() - position;
  const int size = left < U8_MAX_LENGTH ? static_cast<int>(left) : U8_MAX_LENGTH;
  int used = 0;
  UChar32 code_point = 0;
  U8_NEXT(data, used, size, code_point);
  if (code_point < 0) return {CharClass::kOther, 1};
  return {char_class(static_cast<char32_t>(code_point)), static_cast<std::size_t>(used)};
}

// First position at or after `position` whose symbol is of another class.
std::size_t PreTokenizer::run_end(std::size_t position, CharClass type) {
  while (position < text_.size()) {
    const Symbol symbol = symbol_at(position);
    if (symbol.type != type) break;
    position += symbol.size;
  }
  return position;
}

// End of the word that begins with the space symbol at `position`: the whole run at the end of the
// text, else the run without its last symbol (which may lead the next word), but at least one.
std::size_t PreTokenizer::space_end(std::size_t position) {
  const std::size_t first_end = position + symbol_at(position).size;
  std::size_t end = first_end;
  std::size_t last_begin = position;
  while (end < text_.size()) {
    const Symbol symbol = symbol_at(end);
    if (symbol.type != CharClass::kSpace) return last_begin == position ? first_end : last_begin;
    last_begin = end;
    end += symbol.size;
  }
  return end;
}

std::size_t PreTokenizer::contraction_size(std::size_t position) const {
  if (text_[position] != '\'' || position + 1 >= text_.size()) return 0;
  const char first = text_[position + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (position + 2 >= text_.size()) return 0;
  const char second = text_[position + 2];
  const bool three = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
  return three ? 3 : 0;
}

bool PreTokenizer::next(std::string_view& word) {
  if (position_ >= text_.size()) return false;
  const std::size_t begin = position_;
  std::size_t end = begin + contraction_size(begin);
  if (end == begin) {
    const Symbol first = symbol_at(begin);
    end = begin + first.size;
    if (first.type != CharClass::kSpace) {
      end = run_end(end, first.type);
    } else if (text_[begin] == ' ' && end < text_.size()) {
      const Symbol second = symbol_at(end);
      end = second.type == CharClass::kSpace ? space_end(begin)
                                             : run_end(end + second.size, second.type);
    } else {
      end = space_end(begin);
    }
  }
  word = text_.substr(begin, end - begin);
  position_ = end;
  return true;
}

}  // namespace pentatron::tokenizers
