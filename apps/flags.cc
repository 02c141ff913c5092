// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/command.h"
#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/printable.h"
#include "pentatron/config/option_index.h"

namespace pentatron::apps {
namespace {

std::vector<std::string> names_of(const std::vector<Flags::Spec>& specs) {
  std::vector<std::string> names;
  for (const Flags::Spec& s : specs) {
    names.push_back(s.name);
    names.insert(names.end(), s.also.begin(), s.also.end());
  }
  return names;
}

}  // namespace

std::string near_name(const std::string& word, const std::vector<std::string>& names) {
  // One edit in four letters: "foo" is near nothing.
  const int limit = std::clamp(static_cast<int>(word.size()) / 4, word.size() < 3 ? 0 : 1, 3);
  std::string nearest;
  int least = limit + 1;
  for (const std::string& name : names) {
    const int distance = config::edit_distance(word, name, limit);
    if (distance >= least || distance >= static_cast<int>(name.size()) - 1) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

Flags::Flags(std::string command, const std::string& description,
             std::vector<std::string> positionals, std::vector<Spec> specs, const Words& words)
    : command_(std::move(command)), specs_(std::move(specs)) {
  std::vector<std::string> problems;
  for (config::OptionWords line(words, config::OptionWords::Values::kTexts); !line.done();) {
    if (line.peek() == "--help" || line.peek() == "-h") {
      help_ = true;
      print_help(description, positionals);
      return;
    }
    if (std::optional<config::OptionWord> option = line.take_option()) {
      read_option(std::move(*option), line, problems);
    } else {
      positionals_.push_back(line.take());
    }
  }
  check_required(positionals, problems);
  if (!problems.empty()) {
    PENTATRON_THROW(kConfig, "pentatron {}: {}. See pentatron {} --help", command_,
                    fmt::format("{}", fmt::join(problems, "; ")), command_);
  }
}

void Flags::read_option(config::OptionWord option, config::OptionWords& line,
                        std::vector<std::string>& problems) {
  std::replace(option.name.begin(), option.name.end(), '_', '-');
  const auto known = std::find_if(specs_.begin(), specs_.end(), [&](const Spec& s) {
    return s.name == option.name ||
           std::find(s.also.begin(), s.also.end(), option.name) != s.also.end();
  });
  if (known == specs_.end()) {
    const std::string near = near_name(option.name, names_of(specs_));
    problems.push_back(fmt::format("unknown option {}{}", printable(option.name, 80),
                                   near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
    // What follows belongs to it.
    static_cast<void>(line.take_values(/*many=*/true));
    return;
  }
  const std::string& name = known->name;
  std::vector<std::string> values;
  if (option.value) {
    values.push_back(*option.value);
    if (known->value.empty()) problems.push_back(fmt::format("{} takes no value", name));
  } else if (!known->value.empty()) {
    values = line.take_values(known->many);
  }
  if (!known->value.empty() && values.empty()) {
    problems.push_back(fmt::format("{} needs a value ({})", name, known->value));
    // "--prompt --help" asks for no help.
    if (!line.done() && line.peek() == "--help") {
      line.take();
      problems.back() += fmt::format("; a text that begins with -- is written {}=--help", name);
    }
  }
  const auto before = std::find_if(values_.begin(), values_.end(),
                                   [&](const auto& entry) { return entry.first == name; });
  if (before == values_.end()) {
    values_.emplace_back(name, std::move(values));
  } else if (known->many) {
    before->second.insert(before->second.end(), values.begin(), values.end());
  } else {
    before->second = std::move(values);  // the last word counts
  }
}

void Flags::check_required(const std::vector<std::string>& positionals,
                           std::vector<std::string>& problems) const {
  for (const Spec& s : specs_) {
    if (s.required && !has(s.name))
      problems.push_back(fmt::format("{} {} is required", s.name, s.value));
  }
  const bool open_end = !positionals.empty() && positionals.back().ends_with("...");
  if (positionals_.size() < positionals.size() ||
      (positionals_.size() > positionals.size() && !open_end)) {
    problems.push_back(fmt::format("expected {}{} ({}), got {} words without an option name",
                                   open_end ? "at least " : "", positionals.size(),
                                   fmt::join(positionals, " "), positionals_.size()));
  }
}

void Flags::print_help(const std::string& description,
                       const std::vector<std::string>& names) const {
  std::string text = fmt::format("usage: pentatron {}{}{} [options]\n\n{}\n\noptions:\n", command_,
                                 names.empty() ? "" : " ", fmt::join(names, " "), description);
  for (const Spec& s : specs_) {
    const std::string left = fmt::format("  {} {}{}", s.name, s.value, s.many ? "..." : "");
    std::string right = s.help;
    if (s.required) {
      right += " (required)";
    } else if (!s.default_text.empty()) {
      right += fmt::format(" (default {})", s.default_text);
    }
    text += fmt::format("{:<34} {}\n", left, right);
  }
  log::print_line(text);
}

const Flags::Spec& Flags::spec(std::string_view name) const {
  for (const Spec& s : specs_) {
    if (s.name == name) return s;
  }
  PENTATRON_THROW(kInternal, "undeclared option {}", name);
}

bool Flags::has(std::string_view name) const {
  return std::any_of(values_.begin(), values_.end(),
                     [&](const auto& v) { return v.first == name; });
}

std::vector<std::string> Flags::texts(std::string_view name) const {
  for (const auto& [key, values] : values_) {
    if (key == name) return values;
  }
  const Spec& s = spec(name);
  if (s.default_text.empty()) return {};
  return {s.default_text};
}

std::string Flags::text(std::string_view name) const {
  const std::vector<std::string> all = texts(name);
  return all.empty() ? "" : all.front();
}

std::int64_t parse_integer(std::string_view option, std::string_view word, std::int64_t least) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  PENTATRON_CHECK(error == std::errc() && end == word.data() + word.size() && number >= least,
                  kConfig, "{}: expected an integer of at least {}, got '{}'", option, least, word);
  return number;
}

std::int64_t Flags::integer(std::string_view name, std::int64_t least) const {
  return parse_integer(name, text(name), least);
}

double Flags::number(std::string_view name, double least) const {
  const std::string value = text(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  PENTATRON_CHECK(error == std::errc() && end == value.data() + value.size() &&
                      std::isfinite(number) && number >= least,
                  kConfig, "{}: expected a number of at least {}, got '{}'", name, least, value);
  return number;
}

}  // namespace pentatron::apps
