// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/fim.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"

namespace pentatron::datasets {
namespace {

std::int64_t id_of(const tokenizers::Tokenizer& tokenizer, const std::string& token,
                   const char* option) {
  const std::optional<std::int32_t> id = tokenizer.token_id(token);
  PENTATRON_CHECK(id, kConfig,
                  "{} {}: the tokenizer has no such token; add it with --tokenizer-special-tokens, "
                  "or name one that it has",
                  option, token);
  return *id;
}

void check_rate(double rate, const char* option) {
  PENTATRON_CHECK(rate >= 0 && rate <= 1, kConfig, "{} {}: expected 0 to 1", option, rate);
}

// Byte offsets of the characters of valid UTF-8, and the end.
std::vector<std::size_t> characters(std::string_view text) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) begins.push_back(i);
  }
  begins.push_back(text.size());
  return begins;
}

}  // namespace

FimTransform::FimTransform(const FimOptions& options, const tokenizers::Tokenizer& tokenizer)
    : options_(options),
      tokenizer_(tokenizer),
      prefix_(id_of(tokenizer, options.prefix_token, "--fim-prefix-token")),
      middle_(id_of(tokenizer, options.middle_token, "--fim-middle-token")),
      suffix_(id_of(tokenizer, options.suffix_token, "--fim-suffix-token")),
      pad_(id_of(tokenizer, options.pad_token, "--fim-pad-token")),
      eod_(id_of(tokenizer, options.eod_token, "--fim-eod-token")) {
  check_rate(options.rate, "--fim-rate");
  check_rate(options.spm_rate, "--fim-spm-rate");
  if (options.split_sample.empty()) return;
  split_ = id_of(tokenizer, options.split_sample, "--fim-split-sample");
  PENTATRON_CHECK(
      options.fragment_rate, kConfig,
      "--fim-split-sample needs --fim-fragment-rate, the share of fragments to permute");
  check_rate(*options.fragment_rate, "--fim-fragment-rate");
}

std::vector<std::int64_t> FimTransform::apply(std::span<const std::int64_t> tokens,
                                              NumpyRandomState& random) const {
  Tokens out;
  out.reserve(tokens.size() + 8);
  std::span<const std::int64_t> rest = tokens;
  for (auto end = std::ranges::find(rest, eod_); end != rest.end();
       end = std::ranges::find(rest, eod_)) {
    const auto length = static_cast<std::size_t>(end - rest.begin());
    // As in Megatron: an end of document behind another one is left out.
    if (length > 0) {
      permute_document(rest.first(length), random, out);
      out.push_back(eod_);
    }
    rest = rest.subspan(length + 1);
  }
  permute_document(rest, random, out);
  out.resize(tokens.size(), pad_);
  return out;
}

std::vector<std::int64_t> FimTransform::apply(std::span<const std::int64_t> tokens,
                                              std::int64_t seed, std::int64_t sample) const {
  constexpr std::uint64_t kStream = 0x46494D;  // "FIM"
  const PhiloxWords words =
      philox_words(static_cast<std::uint64_t>(seed), kStream, static_cast<std::uint64_t>(sample));
  NumpyRandomState random(words.v[0]);
  return apply(tokens, random);
}

void FimTransform::permute_document(std::span<const std::int64_t> tokens, NumpyRandomState& random,
                                    Tokens& out) const {
  if (!split_ || std::ranges::find(tokens, *split_) == tokens.end()) {
    return permute(tokens, options_.rate, random, out);
  }
  if (!random.happens(options_.rate)) {
    out.insert(out.end(), tokens.begin(), tokens.end());
    return;
  }
  for (auto end = std::ranges::find(tokens, *split_); end != tokens.end();
       end = std::ranges::find(tokens, *split_)) {
    const auto length = static_cast<std::size_t>(end - tokens.begin());
    if (length > 0) {
      permute(tokens.first(length), *options_.fragment_rate, random, out);
      out.push_back(*split_);
    }
    tokens = tokens.subspan(length + 1);
  }
  permute(tokens, *options_.fragment_rate, random, out);
}

void FimTransform::permute(std::span<const std::int64_t> tokens, double rate,
                           NumpyRandomState& random, Tokens& out) const {
  const auto keep = [&] { out.insert(out.end(), tokens.begin(), tokens.end()); };
  if (!random.happens(rate)) return keep();
  const std::string text = text_of(tokens);
  if (!options_.no_prefix.empty() && text.starts_with(options_.no_prefix)) return keep();
  const std::vector<std::size_t> begins = characters(text);
  std::array<std::size_t, 2> cuts{};
  for (std::size_t& cut : cuts) cut = begins[random.random_interval(begins.size() - 1)];
  std::ranges::sort(cuts);
  const auto [first, second] = cuts;
  const auto append = [&](std::size_t begin, std::size_t end) {
    const std::vector<std::int32_t> ids = tokenizer_.encode(
        std::string_view(text).substr(begin, end - begin), tokenizers::SpecialTokens::kParse);
    out.insert(out.end(), ids.begin(), ids.end());
  };
  out.push_back(prefix_);
  if (random.happens(options_.spm_rate)) {
    out.push_back(suffix_);
    append(second, text.size());
    out.push_back(middle_);
    append(0, first);
  } else {
    append(0, first);
    out.push_back(suffix_);
    append(second, text.size());
    out.push_back(middle_);
  }
  append(first, second);
}

std::string FimTransform::text_of(std::span<const std::int64_t> tokens) const {
  std::vector<std::int32_t> ids;
  for (const std::int64_t token : tokens) {
    const auto id = static_cast<std::int32_t>(token);
    if (!tokenizer_.is_special(id)) ids.push_back(id);
  }
  return tokenizer_.decode_utf8(ids);
}

std::string FimTransform::identity() const {
  const nlohmann::json json = {{"rate", options_.rate},
                               {"spm_rate", options_.spm_rate},
                               {"split", split_.value_or(-1)},
                               {"fragment_rate", options_.fragment_rate.value_or(-1)},
                               {"no_prefix", options_.no_prefix},
                               {"tokens", {prefix_, middle_, suffix_, pad_, eod_}},
                               {"tokenizer", tokenizer_.identity_hash()}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace pentatron::datasets
