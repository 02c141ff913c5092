// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/name_map.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::families {
namespace {

using config::ModelConfig;

constexpr std::string_view kLayer = "{}";

// What follows `pattern` in `name`, and the layer's digits; nothing when it does not begin so.
struct Match {
  std::string_view layer;
  std::string_view rest;
};
std::optional<Match> match(std::string_view pattern, std::string_view name) {
  Match found;
  const std::size_t hole = pattern.find(kLayer);
  if (hole == std::string_view::npos) {
    if (!name.starts_with(pattern)) return std::nullopt;
    found.rest = name.substr(pattern.size());
    return found;
  }
  if (!name.starts_with(pattern.substr(0, hole))) return std::nullopt;
  name.remove_prefix(hole);
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return std::nullopt;
  const std::string_view end = pattern.substr(hole + kLayer.size());
  if (!name.substr(digits).starts_with(end)) return std::nullopt;
  return Match{name.substr(0, digits), name.substr(digits + end.size())};
}

std::string filled(std::string_view pattern, std::string_view layer) {
  const std::size_t hole = pattern.find(kLayer);
  if (hole == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, hole), layer,
                     pattern.substr(hole + kLayer.size()));
}

std::int64_t query_rows(const ModelConfig& m) { return m.num_attention_heads * m.kv_channels; }
std::int64_t key_rows(const ModelConfig& m) { return m.num_query_groups * m.kv_channels; }
std::int64_t group_rows(const ModelConfig& m) {
  return m.num_attention_heads / m.num_query_groups * m.kv_channels;
}

}  // namespace

std::vector<NameRule> names_with(std::span<const NameRule> others,
                                 std::initializer_list<NameRule> own) {
  std::vector<NameRule> rules = own;
  for (const NameRule& rule : others) {
    const auto is_own = [&](const NameRule& one) { return one.ours == rule.ours; };
    if (std::none_of(own.begin(), own.end(), is_own)) rules.push_back(rule);
  }
  return rules;
}

std::vector<TensorLink> link_parts(std::string_view family, std::span<const NameRule> rules,
                                   const ModelConfig& model, std::span<const Part> parts) {
  std::vector<TensorLink> links;
  std::map<std::string, std::int64_t> rows_of;  // all parts of a tensor together
  for (const Part& part : parts) {
    const NameRule* rule = nullptr;
    Match found;
    for (const NameRule& candidate : rules) {
      const std::optional<Match> matched = match(candidate.ours, part.name);
      if (!matched) continue;
      rule = &candidate;
      found = *matched;
      break;
    }
    PENTATRON_CHECK(rule != nullptr, kUnsupported,
                    "the family {} has no tensor for the model's {}: its options make another kind "
                    "of model",
                    family, part.name);
    const bool matrix = part.shape.size() > 1;
    TensorLink link{.part = part,
                    .tensor = filled(rule->theirs, found.layer) + std::string(found.rest),
                    .rows = rule->rows != nullptr ? rule->rows(model) : RowBlocks{},
                    .transposed = rule->transposed && matrix};
    rows_of[link.tensor] += part.shape.at(0);
    links.push_back(std::move(link));
  }
  for (TensorLink& link : links) {
    link.tensor_shape = link.part.shape;
    link.tensor_shape[0] = rows_of.at(link.tensor);
    if (link.transposed) std::swap(link.tensor_shape[0], link.tensor_shape[1]);
  }
  return links;
}

RowBlocks stacked_query(const ModelConfig&) { return {}; }
RowBlocks stacked_key(const ModelConfig& m) { return {.first = query_rows(m)}; }
RowBlocks stacked_value(const ModelConfig& m) { return {.first = query_rows(m) + key_rows(m)}; }

RowBlocks grouped_query(const ModelConfig& m) {
  return {.first = 0, .block = group_rows(m), .stride = group_rows(m) + 2 * m.kv_channels};
}
RowBlocks grouped_key(const ModelConfig& m) {
  return {
      .first = group_rows(m), .block = m.kv_channels, .stride = group_rows(m) + 2 * m.kv_channels};
}
RowBlocks grouped_value(const ModelConfig& m) {
  return {.first = group_rows(m) + m.kv_channels,
          .block = m.kv_channels,
          .stride = group_rows(m) + 2 * m.kv_channels};
}

RowBlocks stacked_gate(const ModelConfig&) { return {}; }
RowBlocks stacked_up(const ModelConfig& m) { return {.first = m.ffn_hidden_size}; }

}  // namespace pentatron::families
