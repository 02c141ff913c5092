// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>

#include "pentatron/base/format.h"

namespace pentatron::config {
namespace {

constexpr std::int64_t kLargestInteger = 1'000'000'000'000'000;

struct SignalName {
  std::string_view name;
  int number;
};
constexpr std::array kSignals = {SignalName{"SIGTERM", SIGTERM}, SignalName{"SIGINT", SIGINT},
                                 SignalName{"SIGHUP", SIGHUP},   SignalName{"SIGQUIT", SIGQUIT},
                                 SignalName{"SIGUSR1", SIGUSR1}, SignalName{"SIGUSR2", SIGUSR2}};

bool contains(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> words = split_words(list, '|');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string spaced(std::string_view list) {
  std::string text;
  for (const std::string_view word : split_words(list, '|')) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

// Empty when the word is among what works here.
std::string choice_problem(const OptionSpec& spec, std::string_view word) {
  const std::string_view works = spec.supported.empty() ? spec.choices : spec.supported;
  if (works.empty() || contains(works, word)) return {};
  if (spec.supported.empty() || (!spec.choices.empty() && !contains(spec.choices, word))) {
    return fmt::format("expected one of {}", spaced(works));
  }
  return fmt::format("this value does not work here ({}); expected one of {}", spec.reason,
                     spaced(works));
}

Converted convert_signal(const OptionSpec& spec, std::string_view word) {
  for (const SignalName& signal : kSignals) {
    const std::string number = std::to_string(signal.number);
    if (word == signal.name || word == number) return {std::string(signal.name), {}};
  }
  return {std::nullopt, fmt::format("expected one of {}; {}", spaced(spec.supported), spec.reason)};
}

Converted convert_word(const OptionSpec& spec, const std::string& word) {
  if (spec.kind == OptionKind::kSignal) return convert_signal(spec, word);
  OptionValue value = word;
  if (spec.kind == OptionKind::kInt) {
    const std::optional<std::int64_t> number = parse_integer(word);
    if (!number) return {std::nullopt, "expected an integer"};
    value = *number;
  } else if (spec.kind == OptionKind::kFloat) {
    const std::optional<double> number = parse_number(word);
    if (!number) return {std::nullopt, "expected a number"};
    value = *number;
  }
  if (std::string problem = choice_problem(spec, word); !problem.empty()) {
    return {std::nullopt, std::move(problem)};
  }
  if (spec.check != nullptr) {
    if (const std::string_view expected = spec.check(value); !expected.empty()) {
      return {std::nullopt, fmt::format("expected {}", expected)};
    }
  }
  return {std::move(value), {}};
}

// "2 2" as one word is what a shell makes of a quoted value, and YAML of `sizes: 2 2`.
std::vector<std::string> split_at_blanks(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const std::size_t before = all.size();
    for (const std::string_view part : split_words(word, ' ')) {
      if (!part.empty()) all.emplace_back(part);
    }
    if (all.size() == before) all.push_back(word);
  }
  return all;
}

}  // namespace

std::optional<bool> parse_flag(std::string_view word) {
  for (const std::string_view yes : {"true", "True", "yes", "on"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"false", "False", "no", "off"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view word) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  if (number > kLargestInteger || number < -kLargestInteger) return std::nullopt;
  return number;
}

std::optional<double> parse_number(std::string_view word) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

Converted convert_words(const OptionSpec& spec, const std::vector<std::string>& given) {
  if (spec.nargs == 0) {
    if (given.size() != 1) return {std::nullopt, "expected one value"};
    return convert_word(spec, given.front());
  }
  const bool numbers = spec.kind == OptionKind::kInt || spec.kind == OptionKind::kFloat;
  const std::vector<std::string> words = numbers ? split_at_blanks(given) : given;
  if (words.empty() && spec.nargs != '*') return {std::nullopt, "expected at least one value"};
  for (const std::string& word : words) {
    Converted one = convert_word(spec, word);
    if (!one.value) return one;
  }
  return {words, {}};
}

}  // namespace pentatron::config
