// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/wikitext_detokenizer.h"

#include "pentatron/tokenizers/white_space.h"

namespace pentatron::inference {
namespace {

// Every occurrence from left to right; what was written is not looked at again.
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != std::string::npos;
       found = text.find(from, at)) {
    out.append(text, at, found - at);
    out += to;
    at = found + from.size();
  }
  if (at == 0) return;
  out.append(text, at);
  text = std::move(out);
}

// White space next to a pair of brackets goes, on their inner sides. A pair is an opening one and
// the next closing one; openings between them are text. Quotation marks close themselves.
void tighten(std::string& text, char open, char close) {
  std::string out;
  std::size_t at = 0;
  while (true) {
    const std::size_t begin = text.find(open, at);
    const std::size_t end = begin == std::string::npos ? begin : text.find(close, begin + 1);
    if (end == std::string::npos) break;
    out.append(text, at, begin + 1 - at);
    out += tokenizers::stripped(std::string_view(text).substr(begin + 1, end - begin - 1));
    out += close;
    at = end + 1;
  }
  out.append(text, at);
  text = std::move(out);
}

// Slash, apostrophe, space, digit, slash: the public evaluation means to take the space out, but
// writes the pattern itself in its place, and numbers to compare with were measured so.
void replace_slashed_digits(std::string& text) {
  constexpr std::string_view kBegin = "/' ";
  std::string out;
  std::size_t at = 0;
  std::size_t from = 0;
  for (std::size_t found = text.find(kBegin); found != std::string::npos;
       found = text.find(kBegin, from)) {
    const std::size_t digit = found + kBegin.size();
    from = found + 1;
    if (digit + 1 >= text.size() || text[digit] < '0' || text[digit] > '9' ||
        text[digit + 1] != '/') {
      continue;
    }
    out.append(text, at, found - at);
    out += "/'[0-9]/";
    at = from = digit + 2;
  }
  out.append(text, at);
  text = std::move(out);
}

}  // namespace

std::string detokenize_wikitext(std::string_view tokenised) {
  std::string text(tokenised);
  replace_all(text, "s '", "s'");
  replace_slashed_digits(text);
  // Separators inside numbers and words.
  for (const char sign : {'-', ',', '.'}) {
    replace_all(text, std::string(" @") + sign + "@ ", std::string(1, sign));
  }
  for (const char sign : {':', ';', '.', '!', '?', ','}) {
    replace_all(text, std::string(" ") + sign + " ", std::string(1, sign) + " ");
  }
  tighten(text, '(', ')');
  tighten(text, '[', ']');
  tighten(text, '{', '}');
  tighten(text, '"', '"');
  tighten(text, '\'', '\'');
  // Headings.
  replace_all(text, "= = = =", "====");
  replace_all(text, "= = =", "===");
  replace_all(text, "= =", "==");
  replace_all(text, " \xc2\xb0 ", "\xc2\xb0");  // degrees
  replace_all(text, " \n", "\n");
  replace_all(text, "\n ", "\n");
  replace_all(text, " N ", " 1 ");
  replace_all(text, " 's", "'s");
  return text;
}

}  // namespace pentatron::inference
