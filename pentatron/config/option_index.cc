// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_index.h"

#include <algorithm>
#include <tuple>

namespace pentatron::config {

OptionIndex::OptionIndex() : rows_(all_options()) {
  names_.reserve(rows_.size() + rows_.size() / 8);
  dests_.reserve(rows_.size());
  for (const OptionSpec* spec : rows_) {
    for (const std::string_view name : split_words(spec->names, ' ')) {
      names_.emplace_back(name, spec);
    }
    dests_.emplace_back(spec->dest, spec);
  }
  const auto by_word = [](const Entry& a, const Entry& b) { return a.first < b.first; };
  std::sort(names_.begin(), names_.end(), by_word);
  std::stable_sort(dests_.begin(), dests_.end(), by_word);
}

namespace {
template <typename Entries>
const OptionSpec* find_entry(const Entries& entries, std::string_view word) {
  const auto found =
      std::lower_bound(entries.begin(), entries.end(), word,
                       [](const auto& entry, std::string_view key) { return entry.first < key; });
  return found != entries.end() && found->first == word ? found->second : nullptr;
}
}  // namespace

const OptionSpec* OptionIndex::find_name(std::string_view name) const {
  return find_entry(names_, name);
}

const OptionSpec* OptionIndex::find_dest(std::string_view dest) const {
  return find_entry(dests_, dest);
}

std::vector<std::string_view> OptionIndex::nearest(std::string_view name) const {
  if (name.size() < 3 || name.size() > 100) return {};
  const int limit = std::clamp(static_cast<int>(name.size()) / 6, 1, 4);
  using Candidate = std::tuple<int, int, std::string_view>;
  std::vector<Candidate> candidates;
  for (const auto& [spelling, spec] : names_) {
    const int distance = edit_distance(name, spelling, limit);
    if (distance <= limit) {
      candidates.emplace_back(distance, static_cast<int>(spec->option_class), spelling);
    }
  }
  if (candidates.empty() && name.size() > 5) {
    // Perhaps cut off: other parsers take abbreviations.
    for (const auto& [spelling, spec] : names_) {
      if (spelling.starts_with(name)) {
        candidates.emplace_back(0, static_cast<int>(spec->option_class), spelling);
      }
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<std::string_view> names;
  for (const auto& [distance, option_class, spelling] : candidates) {
    if (names.size() < 2) names.push_back(spelling);
  }
  return names;
}

int edit_distance(std::string_view a, std::string_view b, int limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >
      static_cast<std::size_t>(limit)) {
    return limit + 1;
  }
  const std::size_t width = b.size() + 1;
  std::vector<int> before(width);
  std::vector<int> last(width);
  std::vector<int> row(width);
  for (std::size_t j = 0; j < width; ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    int best = row[0];
    for (std::size_t j = 1; j < width; ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
      best = std::min(best, row[j]);
    }
    if (best > limit) return limit + 1;
    std::swap(before, last);
    std::swap(last, row);
  }
  return std::min(last[b.size()], limit + 1);
}

}  // namespace pentatron::config
