// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/config/parser.h"

// Only tests include it.
namespace pentatron::config::testing_support {

inline ParseRequest request(const std::string& words) {
  ParseRequest result;
  for (const std::string_view word : split_words(words, ' ')) result.words.emplace_back(word);
  return result;
}

// What the words of a command line give.
inline RunConfig config_of(std::vector<std::string> words) {
  ParseRequest request;
  request.words = std::move(words);
  return parse(request).config;
}

inline std::vector<std::string> problems_of(const ParseRequest& from) {
  Problems problems;
  static_cast<void>(parse_into(from, problems));
  return problems.lines();
}

inline std::vector<std::string> problems_of(const std::string& words) {
  return problems_of(request(words));
}

// The only problem, or all of them in one text.
inline std::string problem_of(const std::string& words) {
  std::string text;
  for (const std::string& line : problems_of(words)) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace pentatron::config::testing_support
