// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// SentencePiece's compiled normalisation rules ("precompiled_charsmap"): texts and what stands in
// their place. In bytes: the size of a trie (32 bits, least byte first), the trie, a list of texts
// with a zero byte after each. The trie is a double array of 32-bit units, as Darts-clone lays them
// out: bits 0 to 7 the byte that leads here, bit 8 whether a key ends here, bits 10 to 30 where the
// children are (times 256 with bit 9); bit 31 marks the value of a key, a place in the list.
class Charsmap final {
 public:
  static constexpr std::size_t kMaxKeysOnPath = 32;
  static constexpr std::size_t kMaxKeyBytes = 256;

  // kData ("name: what") for anything else. Then a reader that trusts the bytes, as the
  // sentencepiece library does, never leaves them, and meets at most kMaxKeysOnPath keys where a
  // text begins, for which that library has room.
  Charsmap(std::string_view bytes, std::string_view name);

  // What stands for the shortest key that begins `text`; none where no key does. The work is that
  // key's length.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const;

 private:
  void read_trie(std::string_view bytes);
  void check_units(std::string_view name) const;
  void check_keys(std::string_view name) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace pentatron::tokenizers
