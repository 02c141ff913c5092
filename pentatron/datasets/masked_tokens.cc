// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/masked_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"

namespace pentatron::datasets {
namespace {

constexpr std::int64_t kMaxNgram = 128;
constexpr double kGeometric = 0.2;

// The sum of at most 128 numbers, in the order in which NumPy adds them.
double numpy_sum(std::span<const double> values) {
  constexpr std::size_t kLanes = 8;
  if (values.size() < kLanes) return std::accumulate(values.begin(), values.end(), 0.0);
  std::array<double, kLanes> r{};
  std::copy_n(values.begin(), kLanes, r.begin());
  std::size_t i = kLanes;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) r[j] += values[i + j];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

// Running sums of the probabilities of 1, 2, ... words: 1 / n, or turned round.
std::vector<double> ngram_cdf(const MaskOptions& options) {
  std::vector<double> p(static_cast<std::size_t>(options.max_ngram));
  for (std::size_t n = 0; n < p.size(); ++n) p[n] = 1.0 / static_cast<double>(n + 1);
  const auto normalize = [&p] {
    const double sum = numpy_sum(p);
    for (double& value : p) value /= sum;
  };
  normalize();
  if (options.longer_ngrams) std::ranges::reverse(p);
  normalize();  // Megatron does it twice, and rounding makes them differ
  std::partial_sum(p.begin(), p.end(), p.begin());
  for (double& value : p) value /= p.back();
  return p;
}

// Words: each a list of places. [CLS] and [SEP] are in none.
std::vector<std::vector<std::int64_t>> words_of(std::span<const std::int64_t> tokens,
                                                bool whole_words,
                                                const MaskVocabulary& vocabulary) {
  std::vector<std::vector<std::int64_t>> words;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == vocabulary.cls || tokens[i] == vocabulary.sep) continue;
    const bool continues = vocabulary.continues.at(static_cast<std::size_t>(tokens[i]));
    if (!continues || !whole_words || words.empty()) words.emplace_back();
    words.back().push_back(static_cast<std::int64_t>(i));
  }
  return words;
}

// Places of as many words from `first` on, at most `wanted`, as leave no more than `room`; empty
// when the first word alone has more.
std::vector<std::int64_t> longest_run(const std::vector<std::vector<std::int64_t>>& words,
                                      std::size_t first, std::size_t wanted, double room) {
  const std::size_t last = std::min(words.size(), first + wanted);
  std::vector<std::int64_t> places;
  for (std::size_t w = first; w < last; ++w) {
    if (static_cast<double>(places.size() + words[w].size()) > room) break;
    places.insert(places.end(), words[w].begin(), words[w].end());
  }
  return places;
}

}  // namespace

void check_mask_options(const MaskOptions& options) {
  PENTATRON_CHECK(options.probability > 0 && options.probability < 1, kConfig,
                  "--mask-prob {}: expected more than 0 and less than 1", options.probability);
  PENTATRON_CHECK(options.max_ngram >= 1 && options.max_ngram <= kMaxNgram, kConfig,
                  "{} words masked together: expected 1 to {}", options.max_ngram, kMaxNgram);
}

std::string mask_identity(const MaskOptions& options, const MaskVocabulary& vocabulary) {
  std::string continues;
  for (const bool one : vocabulary.continues) continues += one ? '1' : '0';
  return fmt::format("{} {} {} {} {} vocabulary {} {} {} {} {} {} {} {} {}", options.probability,
                     options.max_ngram, options.whole_words, options.longer_ngrams,
                     options.geometric, vocabulary.size, vocabulary.cls, vocabulary.sep,
                     vocabulary.mask, vocabulary.pad, vocabulary.bos, vocabulary.eos,
                     fmt::join(vocabulary.sentinels, ","), sha256_hex(continues));
}

MaskVocabulary mask_vocabulary(const tokenizers::Tokenizer& tokenizer, std::int64_t extra_ids) {
  const auto named = [&](std::initializer_list<std::string_view> names) -> std::int64_t {
    for (const std::string_view name : names) {
      if (const auto id = tokenizer.token_id(name)) return *id;
    }
    return -1;
  };
  MaskVocabulary vocabulary{.size = tokenizer.vocab_size(),
                            .cls = named({"[CLS]", "<CLS>", "<cls>"}),
                            .sep = named({"[SEP]", "<SEP>", "<sep>"}),
                            .mask = named({"[MASK]", "<MASK>", "<mask>"}),
                            .pad = tokenizer.pad(),
                            .bos = tokenizer.bos().value_or(-1),
                            .eos = tokenizer.eos().value_or(-1)};
  vocabulary.continues.reserve(static_cast<std::size_t>(vocabulary.size));
  for (std::int32_t id = 0; id < vocabulary.size; ++id) {
    vocabulary.continues.push_back(tokenizer.decode(std::array{id}).starts_with("##"));
  }
  for (std::int64_t i = 0;; ++i) {
    const auto id = tokenizer.token_id(fmt::format("<extra_id_{}>", i));
    if (!id) break;
    vocabulary.sentinels.push_back(*id);
  }
  constexpr std::int64_t kMaxExtra = 1'000'000;
  PENTATRON_CHECK(extra_ids >= 0 && extra_ids <= kMaxExtra, kConfig,
                  "--vocab-extra-ids {}: expected 0 to {}", extra_ids, kMaxExtra);
  PENTATRON_CHECK(extra_ids == 0 || vocabulary.sentinels.empty(), kConfig,
                  "--vocab-extra-ids {}: the tokenizer has {} sentinels of its own", extra_ids,
                  vocabulary.sentinels.size());
  for (std::int64_t i = 0; i < extra_ids; ++i) vocabulary.sentinels.push_back(vocabulary.size++);
  vocabulary.continues.resize(static_cast<std::size_t>(vocabulary.size), false);
  // Padding that is also another token cannot be told from it; Megatron then has none.
  for (const std::int64_t other :
       {vocabulary.bos, vocabulary.eos, vocabulary.cls, vocabulary.sep}) {
    if (vocabulary.pad == other) vocabulary.pad = -1;
  }
  return vocabulary;
}

MaskedTokens mask_tokens(std::span<const std::int64_t> tokens, std::int64_t target_length,
                         const MaskOptions& options, const MaskVocabulary& vocabulary,
                         const MaskDraw& draw, NumpyRandomState& random) {
  const auto words = words_of(tokens, options.whole_words, vocabulary);
  // Halves to even, as Python rounds; not a whole number where the target is short.
  const double share = std::nearbyint(static_cast<double>(tokens.size()) * options.probability);
  const double wanted =
      std::min(options.probability * static_cast<double>(target_length), std::max(1.0, share));
  std::vector<std::size_t> order(words.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(std::span<std::size_t>(order));

  MaskedTokens masked{.tokens = {tokens.begin(), tokens.end()}, .spans = {}};
  std::vector<bool> taken(tokens.size(), false);
  std::size_t count = 0;
  const std::vector<double> cdf = ngram_cdf(options);
  for (const std::size_t word : order) {
    if (static_cast<double>(count) >= wanted) break;
    const auto ngram = static_cast<std::size_t>(
        options.geometric ? std::min(random.geometric(kGeometric), options.max_ngram)
                          : static_cast<std::int64_t>(random.choice(cdf)) + 1);
    MaskedSpan span{.places = longest_run(words, word, ngram, wanted - static_cast<double>(count)),
                    .labels = {}};
    const auto is_taken = [&](std::int64_t i) { return taken[static_cast<std::size_t>(i)]; };
    if (span.places.empty() || std::ranges::any_of(span.places, is_taken)) continue;
    for (const std::int64_t place : span.places) {
      const auto i = static_cast<std::size_t>(place);
      taken[i] = true;
      masked.tokens[i] = draw(random).value_or(tokens[i]);
      span.labels.push_back(tokens[i]);
    }
    count += span.places.size();
    masked.spans.push_back(std::move(span));
  }
  std::ranges::sort(masked.spans, {}, [](const MaskedSpan& span) { return span.places.front(); });
  return masked;
}

}  // namespace pentatron::datasets
