// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_words.h"

#include "pentatron/config/convert.h"

namespace pentatron::config {
namespace {

bool names_option(std::string_view word) {
  if (word.size() < 3 || !word.starts_with("--")) return false;
  return word.substr(0, word.find('=')).find_first_of(" \t\n") == std::string_view::npos;
}

}  // namespace

std::optional<OptionWord> OptionWords::take_option() {
  if (done() || !names_option(peek())) return std::nullopt;
  const std::string& word = take();
  const std::size_t equals = word.find('=');
  OptionWord option{.name = word.substr(0, equals), .value = std::nullopt};
  if (equals != std::string::npos) option.value = word.substr(equals + 1);
  return option;
}

std::vector<std::string> OptionWords::take_values(bool many) {
  std::vector<std::string> taken;
  while (!done() && (many || taken.empty()) && is_value(peek())) taken.push_back(take());
  return taken;
}

bool OptionWords::is_value(std::string_view word) const {
  if (values_ == Values::kTexts) return !names_option(word);
  const bool dashed = word.size() > 1 && word.front() == '-';
  return !dashed || parse_number(word).has_value();
}

}  // namespace pentatron::config
