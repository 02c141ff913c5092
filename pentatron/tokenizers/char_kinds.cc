// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/char_kinds.h"

#include <map>
#include <utility>

#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {

CharKinds::CharKinds() {
  using namespace char_kind;
  std::vector<std::uint8_t> all(blocks_.size() * 256, 0);
  const auto mark = [&](std::string_view property, std::uint8_t flags) {
    const CodePointSet set = CodePointSet::property(property);
    for (const auto& [first, last] : set.ranges()) {
      for (char32_t c = first; c <= last && c < all.size(); ++c) all[c] |= flags;
    }
  };
  mark("L", kLetter);
  mark("N", kNumber);
  mark("White_Space", kSpace);
  for (const char* property : {"Lu", "Lt", "Lm", "Lo", "M"}) mark(property, kUpper);
  for (const char* property : {"Ll", "Lm", "Lo", "M"}) mark(property, kLower);
  all['\r'] |= kNewline;
  all['\n'] |= kNewline;

  // Equal blocks are stored once.
  std::map<std::vector<std::uint8_t>, std::uint16_t> known;
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(block * 256);
    const std::vector<std::uint8_t> content(begin, begin + 256);
    const auto [at, fresh] =
        known.try_emplace(content, static_cast<std::uint16_t>(flags_.size() / 256));
    if (fresh) flags_.insert(flags_.end(), content.begin(), content.end());
    blocks_[block] = at->second;
  }
}

const CharKinds& CharKinds::table() {
  static const CharKinds kTable;
  return kTable;
}

}  // namespace pentatron::tokenizers
