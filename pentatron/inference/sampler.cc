// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"

namespace pentatron::inference {
namespace {

constexpr double kLargestTemperature = 100.0;

std::int32_t greedy_token(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

bool is_greedy(const SamplingOptions& options) {
  return options.temperature == 0.0 || options.top_k == 1;
}

}  // namespace

void check_sampling_options(const SamplingOptions& options, std::int64_t vocab_size) {
  PENTATRON_CHECK(options.temperature >= 0.0 && options.temperature <= kLargestTemperature, kConfig,
                  "--temperature {}: expected 0 (greedy) to {}", options.temperature,
                  kLargestTemperature);
  PENTATRON_CHECK(options.top_k >= 0 && options.top_k <= vocab_size, kConfig,
                  "--top-k {}: expected 0 (off) to the vocabulary's size {}", options.top_k,
                  vocab_size);
  PENTATRON_CHECK(options.top_p >= 0.0 && options.top_p <= 1.0, kConfig,
                  "--top-p {}: expected 0 (off) to 1", options.top_p);
  PENTATRON_CHECK(options.top_k == 0 || options.top_p == 0.0, kConfig,
                  "--top-k {} and --top-p {} exclude each other; give one of them", options.top_k,
                  options.top_p);
}

std::vector<double> sampling_distribution(std::span<const float> logits,
                                          const SamplingOptions& options) {
  std::vector<double> probability(logits.size(), 0.0);
  if (is_greedy(options)) {
    probability[static_cast<std::size_t>(greedy_token(logits))] = 1.0;
    return probability;
  }
  const double highest = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    probability[i] = std::exp((static_cast<double>(logits[i]) - highest) / options.temperature);
  }
  if (options.top_k > 0 || options.top_p > 0.0) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    std::size_t keep = order.size();
    if (options.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(options.top_k));
    if (options.top_p > 0.0) {
      const double total = std::accumulate(probability.begin(), probability.end(), 0.0);
      double mass = 0.0;
      for (std::size_t i = 0; i < keep; ++i) {
        mass += probability[order[i]] / total;
        if (mass >= options.top_p) keep = i + 1;
      }
    }
    for (std::size_t i = keep; i < order.size(); ++i) probability[order[i]] = 0.0;
  }
  const double total = std::accumulate(probability.begin(), probability.end(), 0.0);
  for (double& p : probability) p /= total;
  return probability;
}

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    PENTATRON_CHECK(std::isfinite(logits[i]), kData,
                    "the model's logit of token {} at position {} is {}: are the weights damaged?",
                    i, position, logits[i]);
  }
  if (is_greedy(options)) return greedy_token(logits);
  const std::vector<double> probability = sampling_distribution(logits, options);
  const double draw = philox_uniform(options.seed, static_cast<std::uint64_t>(sequence),
                                     static_cast<std::uint64_t>(position));
  double cumulative = 0.0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < probability.size(); ++i) {
    if (probability[i] == 0.0) continue;
    cumulative += probability[i];
    last = i;
    if (draw < cumulative) break;
  }
  return static_cast<std::int32_t>(last);
}

}  // namespace pentatron::inference
