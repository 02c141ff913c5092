// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sentence_splitter.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>

namespace pentatron::datasets {
namespace {

using Words = std::unordered_set<std::string_view>;

// Never end a sentence: a name follows.
const Words& titles() {
  static const Words kWords = {
      "mr",  "mrs", "ms",  "messrs", "mmes", "dr",   "drs",  "prof", "st",   "ste", "rev",  "hon",
      "fr",  "gen", "lt",  "lieut",  "col",  "maj",  "capt", "cmdr", "sgt",  "cpl", "pvt",  "adm",
      "gov", "sen", "rep", "reps",   "sens", "pres", "supt", "insp", "mlle", "mme", "msgr", "amb"};
  return kWords;
}

// Before a number they are no end.
const Words& number_words() {
  static const Words kWords = {"no",  "nos", "vol", "vols", "fig", "figs", "p",  "pp",
                               "sec", "ch",  "art", "eq",   "eqs", "par",  "pt", "ref"};
  return kWords;
}

const Words& abbreviations() {
  static const Words kWords = {
      "etc",  "vs",   "cf",   "al",   "approx", "appt",  "apt",  "assn", "assoc", "asst",  "attn",
      "ave",  "blvd", "bros", "ca",   "cent",   "co",    "corp", "cos",  "ct",    "dept",  "dist",
      "div",  "ed",   "eds",  "est",  "esp",    "ext",   "ft",   "govt", "hr",    "hrs",   "hwy",
      "ibid", "inc",  "intl", "jr",   "sr",     "kg",    "km",   "lb",   "lbs",   "ltd",   "max",
      "mfg",  "min",  "misc", "mt",   "mtn",    "natl",  "oz",   "pl",   "plc",   "pop",   "pub",
      "rd",   "repr", "resp", "ser",  "sq",     "tel",   "temp", "tr",   "trans", "univ",  "viz",
      "yr",   "yrs",  "jan",  "feb",  "mar",    "apr",   "jun",  "jul",  "aug",   "sep",   "sept",
      "oct",  "nov",  "dec",  "mon",  "tue",    "tues",  "wed",  "thu",  "thur",  "thurs", "fri",
      "sat",  "sun",  "ala",  "ariz", "ark",    "calif", "colo", "conn", "del",   "fla",   "ill",
      "ind",  "kan",  "ky",   "md",   "mich",   "minn",  "miss", "mo",   "mont",  "neb",   "nev",
      "okla", "ore",  "pa",   "penn", "tenn",   "tex",   "va",   "vt",   "wash",  "wis",   "wyo",
      "ph.d", "phd"};
  return kWords;
}

// Capitalised words that begin sentences far more often than they continue them.
const Words& starters() {
  static const Words kWords = {
      "the",  "this",  "that",  "these", "those", "he",   "she",   "it",      "they",     "we",
      "you",  "i",     "a",     "an",    "in",    "on",   "at",    "for",     "from",     "but",
      "and",  "so",    "if",    "when",  "while", "as",   "after", "before",  "there",    "then",
      "his",  "her",   "its",   "their", "our",   "my",   "what",  "who",     "where",    "why",
      "how",  "yet",   "since", "once",  "now",   "not",  "most",  "many",    "some",     "all",
      "both", "each",  "one",   "two",   "with",  "by",   "to",    "however", "although", "because",
      "also", "other", "such",  "no",    "yes",   "here", "even",  "until",   "another",  "among"};
  return kWords;
}

UChar32 code_point_at(std::string_view text, std::size_t at) {
  UChar32 c = 0;
  auto i = static_cast<std::int64_t>(at);
  U8_NEXT_OR_FFFD(text.data(), i, static_cast<std::int64_t>(text.size()), c);
  return c;
}

std::size_t next_after(std::string_view text, std::size_t at) {
  auto i = static_cast<std::int64_t>(at);
  U8_FWD_1(text.data(), i, static_cast<std::int64_t>(text.size()));
  return static_cast<std::size_t>(i);
}

bool is_space(UChar32 c) { return u_isUWhiteSpace(c) != 0; }
bool is_end_mark(char c) { return c == '.' || c == '?' || c == '!'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool closes(UChar32 c) {
  const int kind = u_charType(c);
  return c == '"' || c == '\'' || kind == U_END_PUNCTUATION || kind == U_FINAL_PUNCTUATION;
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool is_letter(UChar32 c) { return u_isalpha(c) != 0; }

// "U.S", "e.g", "a.m": letters with a period between each two.
bool is_dotted(std::string_view word) {
  if (word.size() < 3 || word.size() % 2 == 0) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const auto c = static_cast<unsigned char>(word[i]);
    if (i % 2 == 1 ? c != '.' : c >= 0x80 || !is_letter(c)) return false;
  }
  return true;
}

// The word that follows, without quotes and brackets before it.
std::string_view word_at(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const UChar32 c = code_point_at(text, at);
    if (u_isalnum(c) || is_space(c)) break;
    at = next_after(text, at);
  }
  std::size_t end = at;
  while (end < text.size() && u_isalnum(code_point_at(text, end))) end = next_after(text, end);
  return text.substr(at, end - at);
}

class Splitter final {
 public:
  Splitter(std::string_view text, bool keep_newlines) : text_(text), keep_(keep_newlines) {}

  std::vector<std::string_view> run() {
    std::size_t word = 0;  // begin of the word under way
    for (std::size_t at = 0; at < text_.size();) {
      const UChar32 c = code_point_at(text_, at);
      if (is_space(c)) {
        at = next_after(text_, at);
        word = at;
      } else if (!is_end_mark(text_[at])) {
        at = next_after(text_, at);
      } else {
        at = marks(word, at);
        if (at < text_.size() && is_space(code_point_at(text_, at))) continue;
      }
    }
    add(text_.size());
    return std::move(sentences_);
  }

 private:
  // A run of end marks from `at`, in the word from `word`; returns where to go on.
  std::size_t marks(std::size_t word, std::size_t at) {
    std::size_t end = at;
    while (end < text_.size() && is_end_mark(text_[end])) ++end;
    const std::string_view run = text_.substr(at, end - at);
    std::size_t closed = end;
    while (closed < text_.size() && closes(code_point_at(text_, closed))) {
      closed = next_after(text_, closed);
    }
    if (closed == text_.size() || !is_space(code_point_at(text_, closed))) return end;
    std::size_t next = closed;
    while (next < text_.size() && is_space(code_point_at(text_, next))) {
      next = next_after(text_, next);
    }
    if (ends_sentence(text_.substr(word, at - word), run, next)) add(keep_ ? next : closed);
    return closed;
  }

  [[nodiscard]] bool ends_sentence(std::string_view word, std::string_view run,
                                   std::size_t next) const {
    if (run.find_first_not_of('.') != std::string_view::npos) return true;
    const std::string_view following = word_at(text_, next);
    const UChar32 first = following.empty() ? 0 : code_point_at(following, 0);
    if (run.size() > 1) return u_isupper(first) != 0;
    while (!word.empty() && !u_isalnum(code_point_at(word, 0))) {
      word.remove_prefix(next_after(word, 0));
    }
    if (const std::size_t hyphen = word.rfind('-'); hyphen != std::string_view::npos) {
      word.remove_prefix(hyphen + 1);
    }
    const std::string lower = lower_ascii(word);
    if (titles().contains(lower)) return false;
    const bool number_next = !following.empty() && is_digit(following[0]);
    if (number_words().contains(lower) && number_next) return false;
    if (!word.empty() && std::all_of(word.begin(), word.end(), is_digit)) {
      return u_islower(first) == 0;
    }
    const UChar32 letter = word.empty() ? 0 : code_point_at(word, 0);
    const bool initial = !word.empty() && next_after(word, 0) == word.size() && is_letter(letter);
    if (initial && u_isupper(letter) == 0) return u_isupper(first) != 0;
    if (!initial && !is_dotted(word) && !abbreviations().contains(lower)) return true;
    return u_isupper(first) != 0 && starters().contains(lower_ascii(following));
  }

  void add(std::size_t end) {
    std::size_t begin = begin_;
    begin_ = end;
    const bool last = end == text_.size();
    std::string_view piece = text_.substr(begin, end - begin);
    if (!keep_ || last) {
      while (!piece.empty() && is_space(last_of(piece))) {
        piece.remove_suffix(piece.size() - last_begin(piece));
      }
    }
    while (!keep_ && !piece.empty() && is_space(code_point_at(piece, 0))) {
      piece.remove_prefix(next_after(piece, 0));
    }
    if (!piece.empty()) sentences_.push_back(piece);
  }

  static std::size_t last_begin(std::string_view text) {
    constexpr std::size_t kMaxBytes = 4;
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80 && text.size() - begin < kMaxBytes) --begin;
    return begin;
  }
  static UChar32 last_of(std::string_view text) { return code_point_at(text, last_begin(text)); }

  std::string_view text_;
  bool keep_;
  std::size_t begin_ = 0;
  std::vector<std::string_view> sentences_;
};

}  // namespace

std::vector<std::string_view> split_sentences(std::string_view text, bool keep_newlines) {
  return Splitter(text, keep_newlines).run();
}

}  // namespace pentatron::datasets
