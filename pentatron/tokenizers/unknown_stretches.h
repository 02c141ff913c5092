// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// A text whose long stretches of unknown characters are cut short. The sentencepiece library makes
// one piece of such a stretch, however long it is, by joining its characters one by one, each time
// into a new text: a million of them takes a minute. Shortened, they give the same pieces.
class ShortenedText final {
 public:
  // `is_unknown(part)`: the model makes one unknown piece of all of `part`, whole characters. Asked
  // of a sixtieth of a long text, and of all that is left out in parts that overlap by `reach`
  // bytes, as long as the longest piece and the longest rule of normalisation: nothing known
  // crosses from one into the next.
  ShortenedText(std::string_view text, std::size_t reach,
                const std::function<bool(std::string_view)>& is_unknown);

  [[nodiscard]] std::string_view text() const { return cuts_.empty() ? whole_ : short_; }
  // Where a place of text() stands in the whole one.
  [[nodiscard]] std::size_t in_whole(std::size_t place) const;

 private:
  struct Cut {
    std::size_t at = 0;       // in the short text
    std::size_t removed = 0;  // bytes, up to here
  };

  std::string_view whole_;
  std::string short_;
  std::vector<Cut> cuts_;
};

}  // namespace pentatron::tokenizers
