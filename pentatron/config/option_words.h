// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentatron::config {

// A word that names an option, "--lr" or "--lr=1".
struct OptionWord {
  std::string name;                  // "--lr"
  std::optional<std::string> value;  // behind the equals sign
};

// A command line, read word by word. The options of a run (parser.h) and those of tools
// (apps/command.h) are told apart from values here and nowhere else. The words outlive this.
class OptionWords final {
 public:
  // Which words with a dash in front may be values: negative numbers alone, or whatever can name no
  // option.
  enum class Values { kNumbers, kTexts };
  OptionWords(std::span<const std::string> words, Values values) : words_(words), values_(values) {}

  [[nodiscard]] bool done() const { return at_ == words_.size(); }
  [[nodiscard]] const std::string& peek() const { return words_[at_]; }
  // The next word, whatever it is.
  const std::string& take() { return words_[at_++]; }
  // The next word where it names an option: two dashes, and no blank before an equals sign, so that
  // text such as "-- hi" is none.
  [[nodiscard]] std::optional<OptionWord> take_option();
  // The words up to the next option: at most one unless `many`.
  [[nodiscard]] std::vector<std::string> take_values(bool many);

 private:
  [[nodiscard]] bool is_value(std::string_view word) const;

  std::span<const std::string> words_;
  Values values_;
  std::size_t at_ = 0;
};

}  // namespace pentatron::config
