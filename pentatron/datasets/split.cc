// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/split.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

constexpr std::string_view kSplitHelp =
    "one to three non-negative numbers such as \"969, 30, 1\" (training, validation, test)";

bool is_space(char c) { return c == ' ' || c == '\t'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

double parse_number(std::string_view word, std::string_view whole) {
  for (const char c : word) {
    PENTATRON_CHECK(c == '.' || (c >= '0' && c <= '9'), kConfig,
                    "--split \"{}\": \"{}\" is not a number; expected {}", whole, word, kSplitHelp);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  PENTATRON_CHECK(error == std::errc() && end == word.data() + word.size() && std::isfinite(value),
                  kConfig, "--split \"{}\": \"{}\" is not a number; expected {}", whole, word,
                  kSplitHelp);
  return value;
}

// Words between commas; a field may also hold several words apart by spaces.
std::vector<double> parse_numbers(std::string_view text) {
  std::vector<double> numbers;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    std::string_view field = trim(rest.substr(0, comma));
    PENTATRON_CHECK(!field.empty(), kConfig, "--split \"{}\": a number is missing; expected {}",
                    text, kSplitHelp);
    while (!field.empty()) {
      std::size_t length = 0;
      while (length < field.size() && !is_space(field[length])) ++length;
      numbers.push_back(parse_number(field.substr(0, length), text));
      field = trim(field.substr(length));
    }
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  return numbers;
}

std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  PENTATRON_CHECK(!__builtin_mul_overflow(a, b, &result), kConfig,
                  "the number of samples asked for ({} x {}) is past 2^63: lower --train-iters, "
                  "--eval-iters or --global-batch-size",
                  a, b);
  return result;
}

}  // namespace

std::string_view to_string(DataSplit split) {
  switch (split) {
    case DataSplit::kTrain:
      return "train";
    case DataSplit::kValid:
      return "valid";
    case DataSplit::kTest:
      return "test";
  }
  return "unknown";
}

SplitMatrix parse_split(std::string_view text) {
  std::vector<double> parts = parse_numbers(text);
  PENTATRON_CHECK(parts.size() <= 3, kConfig, "--split \"{}\" has {} numbers; expected {}", text,
                  parts.size(), kSplitHelp);
  parts.resize(3, 0.0);
  const double sum = parts[0] + parts[1] + parts[2];
  PENTATRON_CHECK(sum > 0 && std::isfinite(sum), kConfig,
                  "--split \"{}\" sums to {}: at least one part must be above 0", text, sum);
  SplitMatrix matrix;
  matrix.text = std::string(text);
  // The same sums in the same order as Megatron: the bounds are part of the cache files' names.
  double begin = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double end = begin + parts[i] / sum;
    if (end > begin) matrix.ranges[i] = std::pair(begin, end);
    begin = end;
  }
  return matrix;
}

std::pair<std::int64_t, std::int64_t> split_range(const SplitMatrix& matrix, DataSplit split,
                                                  std::int64_t num_sequences) {
  const auto& range = matrix.ranges[static_cast<std::size_t>(split)];
  if (!range) return {0, 0};
  const auto count = static_cast<double>(num_sequences);
  // nearbyint rounds halves to even, as Python's round().
  return {static_cast<std::int64_t>(std::nearbyint(range->first * count)),
          static_cast<std::int64_t>(std::nearbyint(range->second * count))};
}

SampleCounts samples_asked(const RunLength& run, std::int64_t global_batch_size) {
  PENTATRON_CHECK(run.train_iters >= 0 && run.eval_interval >= 0 && run.start_eval_at_iter >= 0 &&
                      run.eval_iters >= 0,
                  kConfig,
                  "--train-iters {}, --eval-interval {}, --start-eval-at-iter {}, --eval-iters {}: "
                  "none may be negative",
                  run.train_iters, run.eval_interval, run.start_eval_at_iter, run.eval_iters);
  PENTATRON_CHECK(global_batch_size > 0, kConfig, "--global-batch-size {} must be at least 1",
                  global_batch_size);
  PENTATRON_CHECK(run.train_iters < std::numeric_limits<std::int64_t>::max(), kConfig,
                  "--train-iters {} is too large", run.train_iters);
  std::int64_t evaluations = 1;
  if (run.eval_interval > 0) {
    const std::int64_t left_out = run.start_eval_at_iter / run.eval_interval;
    // The evaluation after training is there in any case.
    evaluations = std::max<std::int64_t>(run.train_iters / run.eval_interval + 1 - left_out, 1);
  }
  SampleCounts counts;
  counts.train = checked_product(run.train_iters, global_batch_size);
  counts.test = checked_product(run.eval_iters, global_batch_size);
  counts.valid = checked_product(evaluations, counts.test);
  return counts;
}

}  // namespace pentatron::datasets
