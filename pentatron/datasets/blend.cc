// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/blend.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"

namespace pentatron::datasets {
namespace {

constexpr std::uint64_t kMaxListBytes = 64 << 20;
constexpr std::size_t kMaxMembers = 32'766;  // Megatron numbers them in 16 bits

std::string_view stripped(std::string_view word) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = word.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return word.substr(begin, word.find_last_not_of(kBlanks) - begin + 1);
}

std::optional<double> number_of(std::string_view word) {
  word = stripped(word);
  if (word.starts_with('+')) word.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// numpy.sum of doubles that lie side by side: eight running sums up to 128 values, halves above.
double pairwise_sum(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 8) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (n > 128) {
    const std::size_t half = n / 2 - n / 2 % 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  double r[8];
  std::copy_n(values.begin(), 8, r);
  std::size_t i = 8;
  for (; i < n - n % 8; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) r[k] += values[i + k];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

void check_weights(const Blend& blend, std::string_view option) {
  for (std::size_t i = 0; i < blend.weights.size(); ++i) {
    const double weight = blend.weights[i];
    PENTATRON_CHECK(std::isfinite(weight) && weight > 0.0, kConfig,
                    "{}: the weight {} of {} must be a finite number above 0; leave the corpus out "
                    "instead of giving it none",
                    option, weight, quoted_for_message(blend.prefixes[i]));
  }
}

}  // namespace

Blend parse_blend(const std::vector<std::string>& words, std::string_view option) {
  Blend blend;
  std::vector<double> weights;
  std::size_t num_pairs = 0;
  if (words.size() % 2 == 0) {
    num_pairs = words.size() / 2;
    for (std::size_t i = 0; i < words.size(); i += 2) {
      if (const std::optional<double> weight = number_of(words[i])) weights.push_back(*weight);
    }
  }
  PENTATRON_CHECK(weights.empty() || weights.size() == num_pairs, kConfig,
                  "{}: of the words at the places of weights {} are numbers and {} are not; give a "
                  "weight before each corpus, or none at all",
                  option, weights.size(), num_pairs - weights.size());
  const std::size_t step = weights.empty() ? 1 : 2;
  for (std::size_t i = step - 1; i < words.size(); i += step) {
    blend.prefixes.emplace_back(stripped(words[i]));
    PENTATRON_CHECK(!blend.prefixes.back().empty(), kConfig, "{}: an empty prefix of a corpus",
                    option);
  }
  blend.weights = std::move(weights);
  PENTATRON_CHECK(blend.prefixes.size() <= kMaxMembers, kConfig,
                  "{} names {} corpora; a blend holds at most {}: merge some of them", option,
                  blend.prefixes.size(), kMaxMembers);
  check_weights(blend, option);
  return blend;
}

std::vector<std::string> read_blend_words(const std::string& path) {
  std::vector<std::string> words = words_of(read_text_file(path, kMaxListBytes));
  PENTATRON_CHECK(!words.empty(), kConfig, "--data-args-path {} holds no words", path);
  return words;
}

SplitWords read_split_words(const std::string& path) {
  const nlohmann::json root = parse_json(read_text_file(path, kMaxListBytes), path);
  PENTATRON_CHECK(root.is_object(), kConfig,
                  "--per-split-data-args-path {}: expected an object with train, valid and test",
                  path);
  SplitWords words;
  for (const auto& [key, value] : root.items()) {
    std::vector<std::string>* part = key == "train"   ? &words.train
                                     : key == "valid" ? &words.valid
                                     : key == "test"  ? &words.test
                                                      : nullptr;
    PENTATRON_CHECK(
        part != nullptr, kConfig,
        "--per-split-data-args-path {}: unknown key {}; there are train, valid and test", path,
        quoted_for_message(key));
    if (value.is_string()) {
      *part = words_of(value.get<std::string>());
      continue;
    }
    if (value.is_null()) continue;
    const bool strings = value.is_array() && std::ranges::all_of(value, [](const auto& item) {
                           return item.is_string();
                         });
    PENTATRON_CHECK(strings, kConfig,
                    "--per-split-data-args-path {}: {} must be a list of strings or a string", path,
                    key);
    *part = value.get<std::vector<std::string>>();
  }
  return words;
}

std::vector<double> normalized_weights(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> normalized;
  normalized.reserve(weights.size());
  for (const double weight : weights) normalized.push_back(weight / sum);
  return normalized;
}

std::vector<std::int64_t> blend_targets(std::span<const double> normalized, std::int64_t size) {
  std::vector<std::int64_t> targets;
  targets.reserve(normalized.size());
  for (const double weight : normalized) {
    targets.push_back(static_cast<std::int64_t>(std::ceil(static_cast<double>(size) * weight)));
  }
  return targets;
}

std::int64_t with_surplus(std::int64_t target, double surplus) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(target) * (1.0 + surplus)));
}

}  // namespace pentatron::datasets
