// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/jsonl.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace pentatron::datasets {
namespace {

namespace dom = simdjson::dom;

// Finds where a line stops being JSON: simdjson tells only that it does. Runs on bad lines alone.
class ErrorPlace final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    column = std::max<std::int64_t>(1, static_cast<std::int64_t>(position));
    return false;
  }

  std::int64_t column = 1;
};

JsonlProblem syntax_problem(std::string_view line, simdjson::error_code code) {
  ErrorPlace place;
  (void)nlohmann::json::sax_parse(line.begin(), line.end(), &place);
  if (code == simdjson::UTF8_ERROR) return {place.column, "not valid UTF-8"};
  return {place.column, fmt::format("not one JSON object: {}", simdjson::error_message(code))};
}

JsonlProblem key_problem(const std::string& key, std::string_view what) {
  return {1, fmt::format("key \"{}\" {} (--json-keys)", key, what)};
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

}  // namespace

struct JsonlParser::Impl {
  dom::parser parser;
  std::vector<bool> found;
};

JsonlParser::JsonlParser(std::vector<std::string> keys)
    : keys_(std::move(keys)), impl_(std::make_unique<Impl>()), texts_(keys_.size()) {}

JsonlParser::~JsonlParser() = default;

std::optional<JsonlProblem> JsonlParser::parse(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) {
    return JsonlProblem{1, "starts with a byte order mark: save the file as UTF-8 without it"};
  }
  dom::element root;
  const simdjson::error_code code = impl_->parser.parse(line.data(), line.size()).get(root);
  if (code != simdjson::SUCCESS) return syntax_problem(line, code);
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return JsonlProblem{1, "not a JSON object"};
  }
  impl_->found.assign(keys_.size(), false);
  for (const dom::key_value_pair field : object) {
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      if (field.key != keys_[k]) continue;
      if (!collect_texts(field.value, texts_[k])) {
        return key_problem(keys_[k], "must hold a string or an array of strings");
      }
      impl_->found[k] = true;
    }
  }
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    if (!impl_->found[k]) return key_problem(keys_[k], "is missing");
    for (const std::string_view text : texts_[k]) {
      // A lone low surrogate passes simdjson's string reader but makes invalid UTF-8.
      if (!simdjson::validate_utf8(text.data(), text.size())) {
        return key_problem(keys_[k], "holds a lone surrogate escape");
      }
    }
  }
  return std::nullopt;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace pentatron::datasets
