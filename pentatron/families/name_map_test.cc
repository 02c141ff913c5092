// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/name_map.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "pentatron/base/test_support.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/families/test_support.h"

namespace pentatron::families {
namespace {

using test_support::parts_of;
using test_support::reference_models;

std::vector<TensorLink> links_of(const Description& d) {
  return link_parts(d.family->name, d.family->names(d.model), d.model, parts_of(d.model));
}

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

TEST(NameMap, HasTheTensorsOfTheReferenceLibraryAndNoOthers) {
  ASSERT_GE(reference_models().size(), 26U);
  for (const auto& [name, reference] : reference_models().items()) {
    SCOPED_TRACE(name);
    const Description d = read_config(reference.at("config").dump(), name);
    std::map<std::string, std::vector<std::int64_t>> ours;
    for (const TensorLink& link : links_of(d)) ours[link.tensor] = link.tensor_shape;
    EXPECT_EQ(ours, (reference.at("tensors").get<decltype(ours)>()));
  }
}

TEST(NameMap, EveryValueOfATensorBelongsToOnePart) {
  for (const auto& [name, reference] : reference_models().items()) {
    SCOPED_TRACE(name);
    const Description d = read_config(reference.at("config").dump(), name);
    std::map<std::string, std::vector<std::int32_t>> tensors;
    std::map<std::string, std::vector<std::int32_t>> back;
    for (const TensorLink& link : links_of(d)) {
      std::vector<std::int32_t>& tensor = tensors[link.tensor];
      if (tensor.empty()) {
        tensor.resize(static_cast<std::size_t>(product(link.tensor_shape)));
        std::iota(tensor.begin(), tensor.end(), 1);
        back[link.tensor].resize(tensor.size());  // zeros
      }
      const std::int64_t rows = link.part.shape[0];
      // In pieces that do not end where blocks do.
      for (std::int64_t row = 0; row < rows; row += 7) {
        const RowRange range{row, std::min(rows, row + 7)};
        std::vector<std::int32_t> part(
            static_cast<std::size_t>((range.end - range.begin) * row_values(link)));
        gather_rows(link, 4, range, std::as_bytes(std::span(tensor)),
                    std::as_writable_bytes(std::span(part)));
        scatter_rows(link, 4, range, std::as_bytes(std::span(part)),
                     std::as_writable_bytes(std::span(back[link.tensor])));
      }
    }
    EXPECT_EQ(tensors, back);
  }
}

TEST(NameMap, RowsOfFusedTensors) {
  ModelConfig m;
  m.num_attention_heads = 4;
  m.num_query_groups = 2;
  m.kv_channels = 3;
  m.ffn_hidden_size = 10;
  const auto first_rows = [](const RowBlocks& b) {
    return std::vector<std::int64_t>{b.first, b.block, b.stride};
  };
  EXPECT_EQ(first_rows(stacked_query(m)), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(first_rows(stacked_key(m)), (std::vector<std::int64_t>{12, 0, 0}));
  EXPECT_EQ(first_rows(stacked_value(m)), (std::vector<std::int64_t>{18, 0, 0}));
  // A group: two query heads, the key, the value.
  EXPECT_EQ(first_rows(grouped_query(m)), (std::vector<std::int64_t>{0, 6, 12}));
  EXPECT_EQ(first_rows(grouped_key(m)), (std::vector<std::int64_t>{6, 3, 12}));
  EXPECT_EQ(first_rows(grouped_value(m)), (std::vector<std::int64_t>{9, 3, 12}));
  EXPECT_EQ(first_rows(stacked_up(m)), (std::vector<std::int64_t>{10, 0, 0}));
}

TEST(NameMap, APartThatTheFamilyHasNotIsNamed) {
  const Description d =
      read_config(reference_models().at("qwen2").at("config").dump(), "config.json");
  const std::vector<Part> parts = {{"decoder.layers.0.self_attention.sink.weight", {4}}};
  expect_error(ErrorKind::kUnsupported, "qwen2 has no tensor for the model's decoder.layers.0.self",
               [&] { (void)link_parts("qwen2", d.family->names(d.model), d.model, parts); });
}

}  // namespace
}  // namespace pentatron::families
