// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/blended_dataset.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/blend_index.h"
#include "pentatron/datasets/for_each_member.h"
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
                       std::string description, std::string made_of) {
  const std::string name =
      fmt::format("{}-BlendedDataset-{}", md5_hex(description), to_string(options.split));
  return {.what = "blend",
          .stem = fs::path(options.cache_path) / name,
          .description = std::move(description),
          .made_of = std::move(made_of),
          .arrays = {{.name = "dataset_index", .values = &order.members},
                     {.name = "dataset_sample_index", .values = &order.samples}},
          .largest_in_memory = 0,
          .log = options.cache_log};
}

// What the order is of, beyond its description: members that have become shorter may not have what
// is drawn of them.
std::string text_of(const std::vector<std::int64_t>& sizes) {
  return fmt::format("members of {} samples", fmt::join(sizes, ", "));
}

void check_drawn(const std::vector<std::int64_t>& drawn, const std::vector<std::int64_t>& sizes) {
  for (std::size_t m = 0; m < drawn.size(); ++m) {
    PENTATRON_CHECK(drawn[m] <= sizes[m], kData,
                    "the blend draws {} samples of member {}, which has {}: raise "
                    "--mid-level-dataset-surplus",
                    drawn[m], m, sizes[m]);
  }
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
  Order order;
  const auto build = [&](std::span<ArraySink> sinks) {
    sinks[0].begin(IntegerArray::Kind::kInt16, size);
    sinks[1].begin(IntegerArray::Kind::kInt64, size);
    std::vector<std::int64_t> drawn(sizes.size(), 0);
    const BlendBlock put = [&](std::span<const std::int16_t> from,
                               std::span<const std::int64_t> samples) {
      for (const std::int16_t member : from) ++drawn[static_cast<std::size_t>(member)];
      sinks[0].put(std::as_bytes(from));
      sinks[1].put(std::as_bytes(samples));
    };
    if (options.size) {
      draw_blend_index(weights, size, put);
    } else {
      draw_exhaustive_blend_index(sizes, put);
    }
    check_drawn(drawn, sizes);
    order = {sinks[0].finish(), sinks[1].finish()};
  };
  if (options.cache_path.empty()) {
    std::array<ArraySink, 2> memory;
    build(memory);
  } else {
    const std::vector<CacheEntry> names = {
        cache_entry(order, options, description(&BlendMember::description), text_of(sizes)),
        cache_entry(order, options, description(&BlendMember::older_description), text_of(sizes))};
    const auto wrong_with = [&]() -> std::optional<std::string> {
      if (order.members.size() == size && order.samples.size() == size) return std::nullopt;
      return fmt::format("it holds {} and {} samples instead of {}", order.members.size(),
                         order.samples.size(), size);
    };
    static_cast<void>(serve_or_build(names, {.wrong_with = wrong_with, .build = build}));
  }
  members_index_ = std::move(order.members);
  samples_index_ = std::move(order.samples);
}

std::int64_t BlendedDataset::length(std::int64_t i) const {
  return members_.at(static_cast<std::size_t>(member(i))).source->length(member_sample(i));
}

Sample BlendedDataset::sample(std::int64_t i) const {
  PENTATRON_CHECK(i >= 0 && i < num_samples(), kInternal, "sample {} of {}", i, num_samples());
  return members_[static_cast<std::size_t>(member(i))].source->sample(member_sample(i));
}

std::string BlendedDataset::identity() const {
  // The order, which is long, begins.
  std::vector<std::string> texts(members_.size());
  std::string order;
  for_each_member(members_.size() + 1, [&](std::size_t i) {
    if (i == 0) {
      order = hash_of(members_index_);
    } else {
      texts[i - 1] = members_[i - 1].source->identity();
    }
  });
  return nlohmann::json{{"dataset_index", order}, {"members", texts}}.dump();
}

}  // namespace pentatron::datasets
