// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/inspect_sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <variant>

#include "pentatron/base/printable.h"

namespace pentatron::datasets {
namespace {

// Token by token, so that each can be told apart.
std::string text_of(const std::vector<std::int64_t>& tokens,
                    const tokenizers::Tokenizer& tokenizer) {
  std::string text;
  for (const std::int64_t token : tokens) {
    const bool known = token >= 0 && token < tokenizer.vocab_size();
    const std::string one =
        known ? tokenizer.decode_utf8(std::array{static_cast<std::int32_t>(token)})
              : fmt::format("<{}>", token);
    text += (text.empty() ? "" : "|") + one;
  }
  return printable(text, text.size());
}

}  // namespace

std::string format_sample(const Sample& sample, const tokenizers::Tokenizer& tokenizer) {
  std::string text;
  for (const auto& [name, sequence] : sample.sequences) {
    text += fmt::format("sequence {}: {} rows, attention segments of {}\n", name,
                        sequence.positions.size(), fmt::join(sequence.runs, " "));
  }
  for (const auto& [name, values] : sample.fields) {
    std::visit([&](const auto& v) { text += fmt::format("{}: {}\n", name, fmt::join(v, " ")); },
               values);
    if (name.ends_with("tokens")) {
      text += fmt::format("{} as text: {}\n", name, text_of(sample.ids(name), tokenizer));
    }
  }
  return text;
}

}  // namespace pentatron::datasets
