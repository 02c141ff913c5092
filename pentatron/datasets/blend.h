// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::datasets {

// Corpora that are mixed into one source of samples.
struct Blend {
  std::vector<std::string> prefixes;
  std::vector<double> weights =
      {};  // as given, one a prefix; empty: the sizes of the corpora decide
  [[nodiscard]] bool has_weights() const { return !weights.empty(); }
};

// Megatron's list : "w1 p1 w2 p2 ..." where the words at even
// places are all numbers, else a list of prefixes, as is any list of an odd length. Weights that
// are not finite or not above 0, a list in which some of those words are numbers and others are
// not, and more than 32,766 prefixes are errors of kind config that name `option`.
[[nodiscard]] Blend parse_blend(const std::vector<std::string>& words, std::string_view option);

// The words of a file of --data-args-path, separated by white space. A file that cannot be read:
// kIo; one without words: kConfig.
[[nodiscard]] std::vector<std::string> read_blend_words(const std::string& path);

// The words of each part of a file of --per-split-data-args-path: a JSON object whose "train",
// "valid" and "test" are lists of strings or one string. Anything else in it: kConfig naming the
// file and the key.
struct SplitWords {
  std::vector<std::string> train, valid, test;
};
[[nodiscard]] SplitWords read_split_words(const std::string& path);

// Weights divided by their sum, to the bit as NumPy does it (pairwise summation).
[[nodiscard]] std::vector<double> normalized_weights(std::span<const double> weights);

// Samples of each member for a blend of `size` samples: ceil(size * weight).
[[nodiscard]] std::vector<std::int64_t> blend_targets(std::span<const double> normalized,
                                                      std::int64_t size);
// Samples that are built of a member: ceil(target * (1 + surplus)), since rounding may draw some
// more than the target.
[[nodiscard]] std::int64_t with_surplus(std::int64_t target, double surplus);

}  // namespace pentatron::datasets
