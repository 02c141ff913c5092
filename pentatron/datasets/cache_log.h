// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pentatron::datasets {

// What became of the cache entries that a run asked for. Safe from several threads.
class CacheLog final {
 public:
  enum class Fate {
    kServed,     // its files were whole
    kWritten,    // built, and written where files were missing or damaged
    kUnwritten,  // built, but the cache could not be written
  };
  struct Line {
    std::string stem;  // begin of its files' names, folder included
    Fate fate = Fate::kServed;
    std::uint64_t bytes = 0;  // of the arrays
  };

  void add(Line line);
  // Ordered by name.
  [[nodiscard]] std::vector<Line> lines() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
};

}  // namespace pentatron::datasets
