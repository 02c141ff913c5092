// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/streaming_decoder.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace pentatron::tokenizers {
namespace {

constexpr std::size_t kMaxCharacterBytes = 4;

// Bytes of a character by its first one; 1 for what begins none.
std::size_t character_bytes(unsigned char first) {
  if (first >= 0xF0 && first <= 0xF4) return 4;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xC2 && first <= 0xDF ? 2 : 1;
}

// Bytes at the end of `text` that further bytes may make a character.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t n = 1; n < std::min(kMaxCharacterBytes, text.size() + 1); ++n) {
    const std::string_view tail = text.substr(text.size() - n);
    const auto first = static_cast<unsigned char>(tail.front());
    if ((first & 0xC0U) == 0x80U) continue;  // not its begin
    // A tail that is invalid already is several replacement characters, or one and the rest.
    const bool may_grow = character_bytes(first) > n && replace_invalid_utf8(tail).size() == 3;
    return may_grow ? n : 0;
  }
  return 0;
}

}  // namespace

std::string StreamingDecoder::add(std::int32_t id) {
  if (tokenizer_.decodes_apart()) return add_bytes(id);
  window_.push_back(id);
  if (tokenizer_.is_open(id)) return {};
  // What has no text and ends no run of bytes changes nothing.
  const bool alone = shown_ + 1 == window_.size();
  if (alone && tokenizer_.is_special(id) && tokenizer_.decode({&id, 1}).empty()) {
    window_.pop_back();
    return {};
  }
  return take_window();
}

std::string StreamingDecoder::add_bytes(std::int32_t id) {
  bytes_ += tokenizer_.decode({&id, 1});
  return take_whole_characters();
}

std::string StreamingDecoder::take_whole_characters() {
  const std::size_t whole = bytes_.size() - unfinished_bytes(bytes_);
  std::string text = replace_invalid_utf8(std::string_view(bytes_).substr(0, whole));
  bytes_.erase(0, whole);
  return text;
}

std::string StreamingDecoder::take_window() {
  const std::span<const std::int32_t> ids(window_);
  const std::string before = tokenizer_.decode(ids.first(shown_));
  const std::string all = tokenizer_.decode(ids);
  bytes_ += all.substr(std::min(before.size(), all.size()));
  shown_ = window_.size();
  // The last ids that have a text stay: the first text of a list may lose a space, the others not.
  std::size_t kept = 0;
  std::string text;
  while (kept < shown_ && text.empty()) {
    kept = std::min(2 * kept + 1, shown_);
    text = tokenizer_.decode(ids.last(kept));
  }
  window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(kept));
  shown_ = kept;
  return take_whole_characters();
}

std::string StreamingDecoder::finish() {
  std::string text;
  if (shown_ < window_.size()) text = take_window();
  text += replace_invalid_utf8(std::exchange(bytes_, {}));
  window_.clear();
  shown_ = 0;
  return text;
}

}  // namespace pentatron::tokenizers
