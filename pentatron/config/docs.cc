// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/docs.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "pentatron/config/option_table.h"

namespace pentatron::config {
namespace {

// Text for a table's cell: no bar that would end it, and angle brackets as text.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') {
      out += "\\|";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string what(const OptionSpec& spec) {
  std::string text(spec.option_class == OptionClass::kWorks ? spec.help : spec.reason);
  if (!spec.supported.empty()) {
    std::string values;
    for (const std::string_view value : split_words(spec.supported, '|')) {
      values += fmt::format("{}`{}`", values.empty() ? "" : ", ", value);
    }
    text += fmt::format(" (accepted: {})", values);
    if (spec.option_class == OptionClass::kWorks) text += fmt::format("; {}", spec.reason);
  } else if (spec.option_class == OptionClass::kWorks && !spec.choices.empty()) {
    std::string values;
    for (const std::string_view value : split_words(spec.choices, '|')) {
      values += fmt::format("{}`{}`", values.empty() ? "" : ", ", value);
    }
    text += fmt::format(" ({})", values);
  }
  if (!spec.default_note.empty()) text += fmt::format("; {}", spec.default_note);
  return text;
}

std::string names(const OptionSpec& spec) {
  std::string text;
  for (const std::string_view name : split_words(spec.names, ' ')) {
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  }
  return spec.ours ? text + " (ours)" : text;
}

}  // namespace

std::string options_markdown() {
  const std::vector<const OptionSpec*> rows = all_options();
  std::array<int, 6> counts{};
  int num_ours = 0;
  for (const OptionSpec* spec : rows) {
    ++counts[static_cast<std::size_t>(spec->option_class)];
    if (spec->ours) ++num_ours;
  }
  std::string text = fmt::format(
      "# Options\n\n"
      "Written by `pentatron options --markdown` from the option tables in `pentatron/config/`; a "
      "test holds this page to them and to the list of Megatron-LM's own {} options.\n\n"
      "| class | options | meaning |\n| --- | --- | --- |\n"
      "| works | {} | has an effect, which the named test shows |\n"
      "| always so | {} | asks for what is always done; accepted, and one line at start says so |\n"
      "| synonym | {} | an old spelling of another option's value; accepted |\n"
      "| no effect | {} | cannot change a result; accepted, and one line at start says so |\n"
      "| planned | {} | known, refused until it is built, except with its default value |\n"
      "| never | {} | known, refused for good |\n",
      rows.size() - static_cast<std::size_t>(num_ours), counts[0], counts[1], counts[2], counts[3],
      counts[4], counts[5]);
  for (int topic = 0; topic < kNumTopics; ++topic) {
    text += fmt::format(
        "\n## {}\n\n| option | class | default | what / why | test |\n"
        "| --- | --- | --- | --- | --- |\n",
        to_string(static_cast<Topic>(topic)));
    for (const OptionClass option_class :
         {OptionClass::kWorks, OptionClass::kAlwaysSo, OptionClass::kSynonym,
          OptionClass::kNoEffect, OptionClass::kPlanned, OptionClass::kNever}) {
      for (const OptionSpec* spec : rows) {
        if (spec->topic != static_cast<Topic>(topic) || spec->option_class != option_class) {
          continue;
        }
        text += fmt::format("| {} | {} | `{}` | {} | {} |\n", names(*spec), to_string(option_class),
                            cell(spec->default_repr), cell(what(*spec)), cell(spec->test));
      }
    }
  }
  text.pop_back();
  return text;
}

}  // namespace pentatron::config
