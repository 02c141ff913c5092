// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/score_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/datasets/json_scanner.h"

namespace pentatron::inference {
namespace {

using datasets::JsonField;
using datasets::JsonlProblem;

JsonlProblem problem_at(std::size_t offset, std::string message) {
  return {static_cast<std::int64_t>(offset) + 1, std::move(message)};
}

std::string_view text_of(std::string_view line, std::size_t begin, std::size_t end) {
  return line.substr(begin, end - begin);
}

// A string of the line as text; nothing for one that is no text (half a surrogate pair).
std::optional<std::string> decoded(std::string_view raw) {
  const nlohmann::json value = nlohmann::json::parse(raw, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

std::optional<std::string> read_tokens(std::string_view raw, std::int64_t vocab_size,
                                       std::vector<std::int32_t>& tokens) {
  const nlohmann::json value = nlohmann::json::parse(raw, nullptr, false);
  if (!value.is_array()) return "\"tokens\" is not a list of token ids";
  for (std::size_t i = 0; i < value.size(); ++i) {
    const nlohmann::json& item = value[i];
    if (!item.is_number_integer()) return fmt::format("\"tokens\"[{}] is not a token id", i);
    const auto id = item.is_number_unsigned() && item.get<std::uint64_t>() > INT64_MAX
                        ? INT64_MAX
                        : item.get<std::int64_t>();
    if (id < 0 || id >= vocab_size) {
      return fmt::format("\"tokens\"[{}] is {}, outside the model's vocabulary of {}", i,
                         item.dump(), vocab_size);
    }
    tokens.push_back(static_cast<std::int32_t>(id));
  }
  return std::nullopt;
}

std::optional<std::string> read_text(std::string_view raw, const tokenizers::Tokenizer& tokenizer,
                                     const ScoreLineOptions& options,
                                     std::vector<std::int32_t>& tokens) {
  const std::optional<std::string> text = decoded(raw);
  if (!text) return "\"text\" is not a text";
  try {
    tokens = tokenizer.encode(*text);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData) throw;
    return fmt::format("\"text\" has no encoding: {}", error.what());
  }
  if (options.add_bos) {
    const std::optional<std::int32_t> bos = tokenizer.bos();
    PENTATRON_CHECK(bos.has_value(), kConfig,
                    "--add-bos: the tokenizer has no token for the beginning of a sequence");
    // Some tokenizers put it there themselves.
    if (tokens.empty() || tokens.front() != *bos) tokens.insert(tokens.begin(), *bos);
  }
  for (const std::int32_t token : tokens) {
    if (token >= options.vocab_size) {
      return fmt::format("\"text\" has the token {}, outside the model's vocabulary of {}", token,
                         options.vocab_size);
    }
  }
  return std::nullopt;
}

template <typename T>
void append_numbers(std::string& out, const std::vector<T>& numbers, bool single_precision) {
  const char* separator = "";
  for (const T number : numbers) {
    // 0.0 is added so that no minus zero is written.
    if constexpr (std::is_integral_v<T>) {
      fmt::format_to(std::back_inserter(out), "{}{}", separator, number);
    } else if (single_precision) {
      fmt::format_to(std::back_inserter(out), "{}{}", separator, static_cast<float>(number) + 0.0F);
    } else {
      fmt::format_to(std::back_inserter(out), "{}{}", separator, number + 0.0);
    }
    separator = ", ";
  }
}

// The fields of a line that matter here; ends are those of the values in the line.
struct Fields {
  std::optional<JsonField> text;
  std::optional<JsonField> tokens;
  std::string copied;
};

std::variant<Fields, JsonlProblem> read_fields(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) {
    return problem_at(0, "starts with a byte order mark: save the file as UTF-8 without it");
  }
  if (const auto offset = datasets::invalid_utf8_offset(line)) {
    return problem_at(*offset, "not valid UTF-8");
  }
  const datasets::JsonScan scan = datasets::scan_json_object(line);
  if (scan.error) return problem_at(scan.error_offset, "not one JSON object: " + *scan.error);
  constexpr std::array<std::string_view, 4> kOwn{"tokens", "logprobs", "sum", "count"};
  Fields result;
  for (const JsonField& field : scan.fields) {
    const std::string key = decoded(text_of(line, field.key_begin, field.key_end)).value_or("");
    if (key == "text" || key == "tokens") {
      std::optional<JsonField>& place = key == "text" ? result.text : result.tokens;
      if (place) return problem_at(field.key_begin, fmt::format("key \"{}\" stands twice", key));
      place = field;
    }
    if (std::find(kOwn.begin(), kOwn.end(), key) != kOwn.end()) continue;
    if (!result.copied.empty()) result.copied += ", ";
    result.copied += text_of(line, field.key_begin, field.key_end);
    result.copied += ": ";
    result.copied += text_of(line, field.value_begin, field.value_end);
  }
  return result;
}

}  // namespace

std::variant<ScoreLine, JsonlProblem> read_score_line(std::string_view line,
                                                      const tokenizers::Tokenizer& tokenizer,
                                                      const ScoreLineOptions& options) {
  auto read = read_fields(line);
  if (auto* problem = std::get_if<JsonlProblem>(&read)) return std::move(*problem);
  Fields& fields = std::get<Fields>(read);
  if (!fields.text && !fields.tokens) {
    return problem_at(0, "has neither \"tokens\" nor \"text\"");
  }
  ScoreLine result{.tokens = {}, .fields = std::move(fields.copied)};
  const JsonField& source = fields.tokens ? *fields.tokens : *fields.text;
  const std::string_view raw = text_of(line, source.value_begin, source.value_end);
  const auto wrong = fields.tokens ? read_tokens(raw, options.vocab_size, result.tokens)
                                   : read_text(raw, tokenizer, options, result.tokens);
  if (wrong) return problem_at(source.value_begin, *wrong);
  return result;
}

std::variant<std::string, JsonlProblem> read_text_line(std::string_view line) {
  auto read = read_fields(line);
  if (auto* problem = std::get_if<JsonlProblem>(&read)) return std::move(*problem);
  const Fields& fields = std::get<Fields>(read);
  if (!fields.text) return problem_at(0, "has no \"text\"");
  std::optional<std::string> text =
      decoded(text_of(line, fields.text->value_begin, fields.text->value_end));
  if (!text) return problem_at(fields.text->value_begin, "\"text\" is not a text");
  return std::move(*text);
}

std::string write_score_line(const ScoreLine& line, const SequenceScores& scores,
                             bool single_precision) {
  std::string out = "{" + line.fields;
  out += line.fields.empty() ? "\"tokens\": [" : ", \"tokens\": [";
  append_numbers(out, line.tokens, false);
  out += "], \"logprobs\": [";
  append_numbers(out, scores.logprobs, single_precision);
  double sum = 0;
  for (const double logprob : scores.logprobs) sum += logprob;
  fmt::format_to(std::back_inserter(out), "], \"sum\": {}, \"count\": {}}}", sum + 0.0,
                 scores.logprobs.size());
  return out;
}

}  // namespace pentatron::inference
