// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/config/option_table.h"

namespace pentatron::config {

// Rows by spelling and by destination; nearest spellings for a word that is none. Building it sorts
// about a thousand names (well under a millisecond), so it is made where it is needed.
class OptionIndex final {
 public:
  OptionIndex();

  // A row by one of its spellings ("--lr"), null when there is none.
  [[nodiscard]] const OptionSpec* find_name(std::string_view name) const;
  // A row by destination ("layernorm_epsilon"), null when there is none.
  [[nodiscard]] const OptionSpec* find_dest(std::string_view dest) const;
  // At most two spellings close to `name`, nearest first, those that work before those that are
  // refused.
  [[nodiscard]] std::vector<std::string_view> nearest(std::string_view name) const;

  [[nodiscard]] const std::vector<const OptionSpec*>& rows() const { return rows_; }

 private:
  using Entry = std::pair<std::string_view, const OptionSpec*>;
  std::vector<const OptionSpec*> rows_;
  std::vector<Entry> names_;
  std::vector<Entry> dests_;
};

// Edits (insert, delete, replace, swap of neighbours) between two words, or limit + 1 when there
// are more.
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b, int limit);

}  // namespace pentatron::config
