// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/jsonl.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "pentatron/datasets/json_scanner.h"

namespace pentatron::datasets {
namespace {

namespace dom = simdjson::dom;

JsonlProblem problem_at(std::size_t offset, std::string message) {
  return {static_cast<std::int64_t>(offset) + 1, std::move(message)};
}

std::string key_message(std::string_view key, std::string_view what) {
  return fmt::format("key \"{}\" {} (--json-keys)", key, what);
}

// Pieces of one key's value; false when it is neither text nor a list of texts.
bool collect_texts(const dom::element& value, std::vector<std::string_view>& texts) {
  texts.clear();
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    texts.push_back(text);
    return true;
  }
  dom::array list;
  if (value.get(list) != simdjson::SUCCESS) return false;
  for (const dom::element item : list) {
    if (item.get(text) != simdjson::SUCCESS) return false;
    texts.push_back(text);
  }
  return true;
}

// A key as it stands in the line, quotes and escapes included; what is no text equals no key.
std::string decoded_key(std::string_view raw) {
  if (raw.find('\\') == std::string_view::npos) return std::string(raw.substr(1, raw.size() - 2));
  const nlohmann::json value = nlohmann::json::parse(raw, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string_view text_of(std::string_view line, std::size_t begin, std::size_t end) {
  return line.substr(begin, end - begin);
}

// " (the line has "a", "b")": what may have been meant.
std::string keys_of_line(std::string_view line, const JsonScan& scan) {
  constexpr std::size_t kShown = 8;
  constexpr std::size_t kShownBytes = 40;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, scan.fields.size()); ++i) {
    const JsonField& field = scan.fields[i];
    const std::string_view key = text_of(line, field.key_begin, field.key_end);
    if (key.size() <= kShownBytes) names += fmt::format("{}{}", names.empty() ? "" : ", ", key);
  }
  if (names.empty()) return "";
  return fmt::format("; the line has {}{}", names, scan.fields.size() > kShown ? ", ..." : "");
}

}  // namespace

struct JsonlParser::Impl {
  dom::parser parser;
  std::vector<bool> found;
  std::string chosen_values;  // as a list, of a line whose other fields cannot be converted

  // Why a value, whose grammar is right, gives no text.
  std::optional<std::string_view> value_problem(std::string_view value) {
    constexpr std::string_view kNoText = "must hold a string or an array of strings";
    constexpr std::string_view kHalfPair = "holds a lone surrogate escape";
    dom::element element;
    const simdjson::error_code code = parser.parse(fmt::format("[{}]", value)).at(0).get(element);
    if (code == simdjson::STRING_ERROR) return kHalfPair;
    std::vector<std::string_view> texts;
    if (code != simdjson::SUCCESS || !collect_texts(element, texts)) return kNoText;
    for (const std::string_view text : texts) {
      if (!simdjson::validate_utf8(text.data(), text.size())) return kHalfPair;
    }
    return std::nullopt;
  }
};

JsonlParser::JsonlParser(std::vector<std::string> keys)
    : keys_(std::move(keys)), impl_(std::make_unique<Impl>()), texts_(keys_.size()) {}

JsonlParser::~JsonlParser() = default;

// The fast way: one pass that converts everything. Where it cannot tell a line's texts, explain()
// finds out why, or that the reason stands in a field nobody asked for.
std::optional<JsonlProblem> JsonlParser::parse(std::string_view line, std::size_t readable) {
  if (line.starts_with("\xef\xbb\xbf")) {
    return JsonlProblem{1, "starts with a byte order mark: save the file as UTF-8 without it"};
  }
  const bool copy = readable < line.size() + simdjson::SIMDJSON_PADDING;
  dom::object object;
  if (impl_->parser.parse(line.data(), line.size(), copy).get(object) != simdjson::SUCCESS) {
    return explain(line);
  }
  impl_->found.assign(keys_.size(), false);
  for (const dom::key_value_pair field : object) {
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      if (field.key != keys_[k]) continue;
      if (impl_->found[k] || !collect_texts(field.value, texts_[k])) return explain(line);
      impl_->found[k] = true;
    }
  }
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    if (!impl_->found[k]) return explain(line);
    for (const std::string_view text : texts_[k]) {
      // A lone low surrogate passes simdjson's string reader but makes invalid UTF-8.
      if (!simdjson::validate_utf8(text.data(), text.size())) return explain(line);
    }
  }
  return std::nullopt;
}

// The slow way: by the grammar, then the chosen fields alone.
std::optional<JsonlProblem> JsonlParser::explain(std::string_view line) {
  if (const auto offset = invalid_utf8_offset(line)) return problem_at(*offset, "not valid UTF-8");
  const JsonScan scan = scan_json_object(line);
  if (scan.error) {
    const std::size_t first = line.find_first_not_of(" \t\r\n");
    const bool list = first != std::string_view::npos && line[first] == '[';
    return problem_at(scan.error_offset,
                      fmt::format("not one JSON object: {}{}", *scan.error,
                                  list ? "; of a file that is one list, write each item on a line "
                                         "of its own (jq -c '.[]')"
                                       : ""));
  }
  std::vector<const JsonField*> chosen(keys_.size(), nullptr);
  for (const JsonField& field : scan.fields) {
    const std::string key = decoded_key(text_of(line, field.key_begin, field.key_end));
    const auto wanted = std::find(keys_.begin(), keys_.end(), key);
    if (wanted == keys_.end()) continue;
    const JsonField*& place = chosen[static_cast<std::size_t>(wanted - keys_.begin())];
    if (place != nullptr) return problem_at(field.key_begin, key_message(key, "stands twice"));
    place = &field;
  }
  std::string& values = impl_->chosen_values;
  values = "[";
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    if (chosen[k] == nullptr) {
      return problem_at(0, key_message(keys_[k], "is missing") + keys_of_line(line, scan));
    }
    const std::string_view value = text_of(line, chosen[k]->value_begin, chosen[k]->value_end);
    if (const auto wrong = impl_->value_problem(value)) {
      return problem_at(chosen[k]->value_begin, key_message(keys_[k], *wrong));
    }
    values += fmt::format("{}{}", k == 0 ? "" : ",", value);
  }
  values += "]";
  const dom::array list = impl_->parser.parse(values);
  std::size_t k = 0;
  for (const dom::element value : list) collect_texts(value, texts_[k++]);
  return std::nullopt;
}

void JsonlParser::release_large_buffers() {
  constexpr std::size_t kKeptBytes = 1 << 20;
  if (impl_->parser.capacity() > kKeptBytes) impl_->parser = dom::parser();
  if (impl_->chosen_values.capacity() > kKeptBytes) impl_->chosen_values = std::string();
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::optional<std::size_t> invalid_utf8_offset(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const std::string_view character = text.substr(at, size);
    if (character.size() < size || !simdjson::validate_utf8(character.data(), size)) break;
    at += size;
  }
  return at;
}

}  // namespace pentatron::datasets
