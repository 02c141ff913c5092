// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace pentatron::tokenizers {

// How often each word stands in a training text.
class WordCounts final {
 public:
  void add(std::string_view word) {
    const auto found = counts_.find(word);
    if (found != counts_.end()) {
      ++found->second;
    } else {
      counts_.emplace(std::string(word), 1);
    }
  }
  // The counts of another one, which has none afterwards.
  void absorb(WordCounts&& other) {
    if (counts_.size() < other.counts_.size()) counts_.swap(other.counts_);
    for (const auto& [word, count] : other.counts_) counts_[word] += count;
    other.counts_.clear();
  }

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  using Map = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;
  [[nodiscard]] const Map& counts() const { return counts_; }
  [[nodiscard]] bool empty() const { return counts_.empty(); }

 private:
  Map counts_;
};

}  // namespace pentatron::tokenizers
