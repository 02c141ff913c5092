// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// A token that is found in the text itself, before the model sees it ("added_tokens" of a
// tokenizer.json).
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // "<|endoftext|>" and the like
  bool single_word = false;  // only where no letter, digit or underscore stands beside it
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces after it
  bool normalized = false;   // is looked for in the normalised text, in its normalised form
};

// Finds the longest of a list of tokens at the leftmost place. Time: a search
// for the first bytes, and there the lengths that begin with them.
class AddedTokenFinder final {
 public:
  // The tokens are copied; those without content are left out.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  struct Found {
    std::size_t begin;  // of what is taken, spaces of lstrip and rstrip included
    std::size_t end;
    const AddedToken* token;  // nullptr: none, begin and end are the text's end
    std::size_t next;         // where the search goes on: the token's own end
  };
  // From a border of characters on; `taken`: where the text that no token has taken begins, which
  // is after `from` where an rstrip reached further. (A token that lies in spaces which an rstrip
  // took is found all the same, as in the reference library; it then takes no text.) Special tokens
  // count only if `with_special`.
  [[nodiscard]] Found find(std::string_view text, std::size_t from, std::size_t taken,
                           bool with_special) const;
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

 private:
  // The first place at or after `at` where a token may begin.
  [[nodiscard]] std::size_t candidate(std::string_view text, std::size_t at,
                                      bool with_special) const;
  [[nodiscard]] bool fits(std::string_view text, std::size_t begin, const AddedToken& token) const;

  std::vector<AddedToken> tokens_;  // by first byte, the longest first
  std::array<std::uint32_t, 257> first_{};
  std::array<std::string, 2> beginnings_;  // first bytes: of tokens that are not special, of all
};

}  // namespace pentatron::tokenizers
