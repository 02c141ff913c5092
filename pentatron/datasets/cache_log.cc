// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/cache_log.h"

#include <algorithm>
#include <utility>

namespace pentatron::datasets {

void CacheLog::add(Line line) {
  const std::lock_guard lock(mutex_);
  lines_.push_back(std::move(line));
}

std::vector<CacheLog::Line> CacheLog::lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<Line> sorted = lines_;
  std::ranges::sort(sorted, {}, &Line::stem);
  return sorted;
}

}  // namespace pentatron::datasets
