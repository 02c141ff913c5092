// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {

// Text of ids that come one at a time. What add() and finish() return is valid UTF-8, is never
// taken back, and joined equals Tokenizer::decode_utf8() of all ids: characters that are spread
// over several tokens, and bytes that may still prove invalid, wait. The cost of an id does not
// grow with the ids before it (but for a run of byte tokens, which waits for its end, and one of
// spaces that the text's beginning loses).
class StreamingDecoder final {
 public:
  // `tokenizer` must outlive it.
  explicit StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text that is certain now. kData for an id outside the vocabulary.
  [[nodiscard]] std::string add(std::int32_t id);
  // What waited; the decoder then is as new.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string add_bytes(std::int32_t id);
  [[nodiscard]] std::string take_window();
  // Of bytes_, what no later byte can change.
  [[nodiscard]] std::string take_whole_characters();

  const Tokenizer& tokenizer_;
  std::string bytes_;  // of an unfinished character
  // Where ids do not decode by themselves: some that have been shown, for what they do to the ones
  // after them, and those that wait.
  std::vector<std::int32_t> window_;
  std::size_t shown_ = 0;  // of the window
};

}  // namespace pentatron::tokenizers
