// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/blended_dataset.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/blend_index.h"
#include "pentatron/datasets/index_file.h"

namespace pentatron::datasets {
namespace fs = std::filesystem;
namespace {

struct Order {
  IntegerArray members;  // int16
  IntegerArray samples;  // int64
};

// The files of `order` in the cache; it must outlive the entry.
CacheEntry cache_entry(Order& order, const BlendedDataset::Options& options,
                       std::string description) {
  const std::string name =
      fmt::format("{}-BlendedDataset-{}", md5_hex(description), to_string(options.split));
  return {.what = "blend",
          .stem = fs::path(options.cache_path) / name,
          .description = std::move(description),
          .arrays = {{.name = "dataset_index", .values = &order.members},
                     {.name = "dataset_sample_index", .values = &order.samples}},
          .log = options.cache_log};
}

// Why the order cannot be one of such members; nothing when it can. Each member's samples come in
// their order, none left out.
std::optional<std::string> wrong_with(const Order& order, std::size_t num_members,
                                      std::int64_t size) {
  if (order.members.size() != size || order.samples.size() != size) {
    return fmt::format("it holds {} and {} samples instead of {}", order.members.size(),
                       order.samples.size(), size);
  }
  std::vector<std::int64_t> drawn(num_members, 0);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t member = order.members[i];
    if (member < 0 || member >= static_cast<std::int64_t>(num_members)) {
      return fmt::format("sample {} is of member {} of {}", i, member, num_members);
    }
    if (order.samples[i] != drawn[static_cast<std::size_t>(member)]++) {
      return fmt::format("sample {} is out of order", i);
    }
  }
  return std::nullopt;
}

// All lines but the first moved right.
std::string indented(const std::string& text, std::size_t columns) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out.append(columns, ' ');
  }
  return out;
}

std::string hash_of(const IntegerArray& array) {
  Sha256 hash;
  hash.update(array.bytes());
  return hash.hex_digest();
}

}  // namespace

std::string blend_description(const std::vector<std::string>& members,
                              const std::vector<double>& weights,
                              const std::vector<std::int64_t>& sizes,
                              std::optional<std::int64_t> size, DataSplit split) {
  const auto list = [](const auto& items, auto text) {
    std::string all = "[";
    for (const auto& item : items) {
      all += fmt::format("{}\n        {}", all.size() > 1 ? "," : "", text(item));
    }
    return all + "\n    ]";
  };
  const std::string all_members =
      list(members, [](const std::string& member) { return indented(member, 8); });
  const std::string all_weights =
      weights.empty() ? list(sizes, [](std::int64_t n) { return std::to_string(n); })
                      : list(weights, [](double weight) { return python_json_float(weight); });
  return fmt::format(
      "{{\n    \"class\": \"BlendedDataset\",\n    \"datasets\": {},\n    \"split\": \"{}\",\n"
      "    \"weights\": {},\n    \"size\": {}\n}}",
      all_members, to_string(split), all_weights, size ? std::to_string(*size) : "null");
}

BlendedDataset::BlendedDataset(std::vector<BlendMember> members, const Options& options)
    : members_(std::move(members)) {
  std::vector<std::int64_t> sizes;
  for (const BlendMember& member : members_) sizes.push_back(member.source->num_samples());
  std::vector<double> weights = options.weights;
  if (options.size) {
    if (weights.empty()) weights.assign(sizes.begin(), sizes.end());
    weights = normalized_weights(weights);
  }
  PENTATRON_CHECK(options.size || weights.empty(), kInternal, "a weighted blend needs a size");
  const std::int64_t size =
      options.size.value_or(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));

  const auto description = [&](std::string BlendMember::*which) {
    std::vector<std::string> texts;
    for (const BlendMember& member : members_) texts.push_back(member.*which);
    return blend_description(texts, weights, sizes, options.size, options.split);
  };
  const bool cached = !options.cache_path.empty();
  Order order;
  const auto entry = [&](std::string BlendMember::*which) {
    return cache_entry(order, options, description(which));
  };
  const auto serves = [&](std::string BlendMember::*which) {
    return cached &&
           cache_serves(entry(which), [&] { return wrong_with(order, members_.size(), size); });
  };
  if (!serves(&BlendMember::description) && !serves(&BlendMember::older_description)) {
    BlendIndex index =
        options.size ? build_blend_index(weights, size) : build_exhaustive_blend_index(sizes);
    order = Order{IntegerArray(std::move(index.members)), IntegerArray(std::move(index.samples))};
    const bool older = cached && !cache_stands(entry(&BlendMember::description)) &&
                       cache_stands(entry(&BlendMember::older_description));
    if (cached) {
      write_cache(entry(older ? &BlendMember::older_description : &BlendMember::description));
    }
  }
  members_index_ = std::move(order.members);
  samples_index_ = std::move(order.samples);
  std::vector<std::int64_t> drawn(members_.size(), 0);
  for (std::int64_t i = 0; i < size; ++i) ++drawn[static_cast<std::size_t>(members_index_[i])];
  for (std::size_t m = 0; m < drawn.size(); ++m) {
    PENTATRON_CHECK(drawn[m] <= sizes[m], kData,
                    "the blend draws {} samples of member {}, which has {}: raise "
                    "--mid-level-dataset-surplus",
                    drawn[m], m, sizes[m]);
  }
}

std::int64_t BlendedDataset::length(std::int64_t i) const {
  return members_.at(static_cast<std::size_t>(member(i))).source->length(member_sample(i));
}

Sample BlendedDataset::sample(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_samples(), kInternal, "sample {} of {}", i, num_samples());
  return members_[static_cast<std::size_t>(member(i))].source->sample(member_sample(i));
}

std::string BlendedDataset::identity() const {
  nlohmann::json json = {{"dataset_index", hash_of(members_index_)},
                         {"members", nlohmann::json::array()}};
  for (const BlendMember& member : members_) json["members"].push_back(member.source->identity());
  return json.dump();
}

}  // namespace pentatron::datasets
