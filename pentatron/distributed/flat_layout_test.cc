// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/flat_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

struct Model {
  std::vector<std::unique_ptr<nn::Parameter>> parameters;
  std::vector<nn::Unit> units;
};

// Parts one below the other, each with some padding rows (possibly) and a box that may be empty.
nn::ShardSpec random_spec(std::mt19937& random, const std::string& name) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  nn::ShardSpec spec;
  const bool matrix = draw(0, 1) == 1;
  const std::int64_t columns = draw(1, 70);
  std::int64_t rows = 0;
  const std::int64_t num_parts = draw(1, 3);
  for (std::int64_t i = 0; i < num_parts; ++i) {
    nn::ShardPart part;
    part.name = name + "." + std::to_string(i);
    const std::int64_t real = draw(0, 40);
    part.local_row_begin = rows;
    part.local_rows = real + draw(0, 3);
    part.logical_shape = {real * 2 + 1};
    part.box = {{draw(0, 1) * real}, {real}};
    if (matrix) {
      part.logical_shape.push_back(columns);
      part.box.offset.push_back(0);
      part.box.size.push_back(columns);
    }
    rows += part.local_rows;
    spec.parts.push_back(part);
  }
  spec.local_shape = {rows};
  if (matrix) spec.local_shape.push_back(columns);
  return spec;
}

Model random_model(unsigned seed, const PrecisionPolicy& policy) {
  std::mt19937 random(seed);
  Model model;
  for (int unit = 0; unit < 6; ++unit) {
    model.units.push_back({"unit" + std::to_string(unit), {}});
    const int count = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < count; ++i) {
      const std::string name = model.units.back().name + "." + std::to_string(i);
      model.parameters.push_back(
          std::make_unique<nn::Parameter>(name, random_spec(random, name), policy));
      model.units.back().parameters.push_back(model.parameters.back().get());
    }
  }
  return model;
}

std::int64_t real_elements(const std::vector<std::unique_ptr<nn::Parameter>>& parameters) {
  std::int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter->num_local_elements();
  return count;
}

void check_layout(const FlatLayout& layout, const FlatLayoutOptions& options,
                  const PrecisionPolicy& policy) {
  std::int64_t cursor = 0;
  std::size_t next_slot = 0;
  int previous_unit = 1 << 20;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const FlatBucket& bucket = layout.buckets()[b];
    EXPECT_EQ(bucket.begin, cursor) << "buckets follow each other";
    for (const DType dtype : {policy.parameter, policy.main_grad}) {
      const std::int64_t bytes = (bucket.end - bucket.begin) * tensor::item_bytes(dtype);
      EXPECT_EQ(bytes % (options.num_shards * 256), 0);
    }
    std::int64_t filled = bucket.begin;
    std::vector<int> units;
    for (const std::size_t s : bucket.slots) {
      const FlatSlot& slot = layout.slots()[s];
      EXPECT_EQ(s, next_slot++) << "slots in order";
      EXPECT_GE(slot.begin, filled);
      EXPECT_EQ(slot.end - slot.begin, slot.parameter->num_local_elements());
      EXPECT_LE(slot.unit, previous_unit) << "last unit first";
      EXPECT_EQ(slot.begin * tensor::item_bytes(policy.parameter) % 256, 0);
      EXPECT_EQ(slot.begin * tensor::item_bytes(policy.main_grad) % 256, 0);
      if (units.empty() || units.back() != slot.unit) units.push_back(slot.unit);
      previous_unit = slot.unit;
      filled = slot.end;
    }
    EXPECT_EQ(bucket.units, units);
    EXPECT_GE(bucket.end, filled);
    cursor = bucket.end;
    std::int64_t shard_end = bucket.begin;
    for (std::int64_t r = 0; r < options.num_shards; ++r) {
      const auto [from, to] = layout.shard_range(b, r);
      EXPECT_EQ(from, shard_end);
      EXPECT_EQ((to - from) * options.num_shards, bucket.end - bucket.begin);
      shard_end = to;
    }
    EXPECT_EQ(shard_end, bucket.end);
  }
  EXPECT_EQ(cursor, layout.num_elements());
  EXPECT_EQ(next_slot, layout.slots().size());
}

// Any cut gives segments that cover every real element of every part once and no padding.
void check_segments(const FlatLayout& layout,
                    const std::vector<std::pair<std::int64_t, std::int64_t>>& cuts) {
  std::map<std::string, std::map<std::int64_t, FlatSegment>> found;
  Tensor real = tensor::zeros({layout.num_elements()}, DType::Long);
  for (const auto& [begin, end] : cuts) {
    std::int64_t last = begin;
    for (const FlatSegment& segment : segments_in(layout, begin, end)) {
      EXPECT_GT(segment.length, 0);
      EXPECT_GE(segment.flat_begin, last);
      last = segment.flat_begin + segment.length;
      EXPECT_LE(last, end);
      real.narrow(0, segment.flat_begin, segment.length).add_(1);
      EXPECT_TRUE(found[segment.part->name].emplace(segment.box_begin, segment).second);
    }
  }
  std::int64_t total = 0;
  for (const FlatSlot& slot : layout.slots()) {
    for (const nn::ShardPart& part : slot.parameter->spec().parts) {
      std::int64_t next = 0;
      for (const auto& [box_begin, segment] : found[part.name]) {
        EXPECT_EQ(box_begin, next) << part.name;
        next += segment.length;
        EXPECT_EQ(segment.parameter, slot.parameter);
      }
      EXPECT_EQ(next, part.box.num_elements()) << part.name;
      total += next;
    }
  }
  EXPECT_EQ(real.sum().item<std::int64_t>(), total);
  EXPECT_LE(real.max().item<std::int64_t>(), 1);
}

TEST(FlatLayout, LayoutOfRandomModels) {
  unsigned seed = 0;
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const PrecisionPolicy policy = precision_policy(precision);
    for (const std::int64_t reduction : {1, 2, 3, 8}) {
      for (const std::int64_t bucket_bytes : {1, 5000, 20000, 40 << 20}) {
        SCOPED_TRACE(testing::Message() << precision << ", reduction " << reduction << ", bucket "
                                        << bucket_bytes << ", seed " << ++seed);
        Model model = random_model(seed, policy);
        const FlatLayoutOptions options{.num_shards = reduction, .bucket_bytes = bucket_bytes};
        const FlatLayout layout(model.units, options, policy);
        EXPECT_EQ(layout.slots().size(), model.parameters.size());
        check_layout(layout, options, policy);
        std::vector<std::pair<std::int64_t, std::int64_t>> shards;
        std::vector<std::pair<std::int64_t, std::int64_t>> odd;
        for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
          for (std::int64_t r = 0; r < reduction; ++r) shards.push_back(layout.shard_range(b, r));
        }
        for (std::int64_t at = 0; at < layout.num_elements(); at += 17) {
          odd.push_back({at, std::min(at + 17, layout.num_elements())});
        }
        check_segments(layout, {{0, layout.num_elements()}});
        check_segments(layout, shards);
        check_segments(layout, odd);
      }
    }
  }
}

TEST(FlatLayout, HoldsTheParametersOfOneGrid) {
  const PrecisionPolicy policy = precision_policy("fp32");
  Model model = random_model(7, policy);
  std::vector<std::unique_ptr<nn::Parameter>> experts;
  std::vector<nn::Unit> mixed;
  for (const nn::Unit& unit : model.units) {
    std::mt19937 random(static_cast<unsigned>(mixed.size() + 49));
    nn::ShardSpec spec = random_spec(random, "expert of " + unit.name);
    for (nn::ShardPart& part : spec.parts) part.grid = "expert";
    experts.push_back(std::make_unique<nn::Parameter>("expert", std::move(spec), policy));
    mixed.push_back(unit);
    mixed.back().parameters.insert(mixed.back().parameters.begin(), experts.back().get());
  }
  experts[2]->set_trainable(false);
  const FlatLayout dense(mixed, {.grid = "dense"}, policy);
  const FlatLayout expert(mixed, {.grid = "expert"}, policy);
  EXPECT_EQ(dense.slots().size(), model.parameters.size());
  EXPECT_EQ(expert.slots().size(), experts.size() - 1);
  for (const FlatSlot& slot : expert.slots()) EXPECT_EQ(slot.parameter->local_name(), "expert");
  EXPECT_TRUE(dense.frozen().empty());
  EXPECT_EQ(expert.frozen(), std::vector<nn::Parameter*>{experts[2].get()});
  // Without a choice two grids would share one reduction group.
  EXPECT_THROW(FlatLayout(mixed, {}, policy), Error);
  nn::ShardSpec both = experts[0]->spec();
  both.parts.push_back(both.parts.back());
  both.parts.back().name = "other";
  both.parts.back().local_row_begin = both.local_shape[0];
  both.local_shape[0] += both.parts.back().local_rows;
  both.parts.back().grid = "dense";
  nn::Parameter split("split", both, policy);
  EXPECT_THROW(FlatLayout({{"split", {&split}}}, {}, policy), Error);
}

TEST(FlatLayout, FrozenWeightsHaveNoPlaceAndTiedOnesABucket) {
  const PrecisionPolicy policy = precision_policy("fp32");
  const auto make = [&](const std::string& name, bool tied) {
    nn::ShardPart part;
    part.name = name;
    part.logical_shape = {4, 2};
    part.box = {{0, 0}, {4, 2}};
    part.local_rows = 4;
    part.tied = tied;
    return std::make_unique<nn::Parameter>(name, nn::ShardSpec{{part}, {4, 2}}, policy);
  };
  const auto embedding = make("embedding", true);
  const auto frozen = make("frozen", false);
  const auto norm = make("norm", false);
  const auto weight = make("weight", false);
  frozen->set_trainable(false);
  const FlatLayout layout({{"embedding", {embedding.get()}},
                           {"layer", {frozen.get(), weight.get()}},
                           {"head", {norm.get()}}},
                          {}, policy);
  ASSERT_EQ(layout.slots().size(), 3U);
  EXPECT_EQ(layout.slots()[0].parameter, norm.get());
  EXPECT_EQ(layout.slots()[1].parameter, weight.get());
  ASSERT_EQ(layout.buckets().size(), 2U);
  EXPECT_EQ(layout.buckets()[0].units, (std::vector<int>{2, 1}));
  EXPECT_EQ(layout.buckets()[1].units, std::vector<int>{0});
  EXPECT_EQ(layout.frozen(), std::vector<nn::Parameter*>{frozen.get()});
}

// Cut by whole matrices: each lies on one shard, shards are even, and what is no matrix is cut by
// elements in buckets of its own.
TEST(FlatLayout, MatricesStayWholeOnOneShard) {
  for (const std::int64_t shards : {1, 2, 3, 8}) {
    for (const std::int64_t bucket_bytes : {1, 4000, 40 << 20}) {
      SCOPED_TRACE(testing::Message() << shards << " shards, bucket " << bucket_bytes);
      const PrecisionPolicy policy = precision_policy("fp32");
      std::vector<std::unique_ptr<nn::Parameter>> parameters;
      std::vector<nn::Unit> units;
      for (int unit = 0; unit < 5; ++unit) {
        units.push_back({"unit" + std::to_string(unit), {}});
        for (int i = 0; i < 4; ++i) {
          nn::ShardPart part;
          part.name = units.back().name + "." + std::to_string(i);
          part.logical_shape = {8 + 5 * unit + i, 16 + 3 * i};
          part.box = {{0, 0}, part.logical_shape};
          part.local_rows = part.logical_shape[0];
          if (i == 3) part.role = nn::ShardRole::kVector;
          parameters.push_back(std::make_unique<nn::Parameter>(
              part.name, nn::ShardSpec{{part}, part.logical_shape}, policy));
          units.back().parameters.push_back(parameters.back().get());
        }
      }
      const FlatLayout layout(
          units, {.num_shards = shards, .cut = ShardCut::kMatrices, .bucket_bytes = bucket_bytes},
          policy);
      EXPECT_EQ(layout.slots().size(), parameters.size());
      std::int64_t held = 0;
      std::int64_t of_matrices = 0;
      for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
        const FlatBucket& bucket = layout.buckets()[b];
        for (const std::size_t s : bucket.slots) {
          const FlatSlot& slot = layout.slots()[s];
          const bool matrix = nn::is_matrix(slot.parameter->spec());
          EXPECT_EQ(matrix, nn::is_matrix(layout.slots()[bucket.slots[0]].parameter->spec()));
          EXPECT_EQ(slot.begin % 64, 0);
          held += slot.end - slot.begin;
          if (!matrix) continue;
          const std::int64_t length = bucket.size() / shards;
          EXPECT_EQ((slot.begin - bucket.begin) / length, (slot.end - 1 - bucket.begin) / length)
              << "on one shard";
        }
        if (nn::is_matrix(layout.slots()[bucket.slots[0]].parameter->spec())) {
          of_matrices += bucket.size();
        }
      }
      EXPECT_EQ(real_elements(parameters), held);
      // With room for all in one bucket no shard is much longer than the mean.
      if (bucket_bytes == 40 << 20 && shards < 8) EXPECT_LT(of_matrices, held * 3 / 2);
      check_segments(layout, {{0, layout.num_elements()}});
    }
  }
}

TEST(FlatLayout, ABucketPerUnit) {
  const PrecisionPolicy policy = precision_policy("fp32");
  const Model model = random_model(11, policy);
  const FlatLayout layout(model.units, {.num_shards = 2, .bucket_per_unit = true}, policy);
  EXPECT_EQ(layout.buckets().size(), model.units.size());
  for (const FlatBucket& bucket : layout.buckets()) EXPECT_EQ(bucket.units.size(), 1U);
  EXPECT_EQ(layout.packed_begin(1) * 2, layout.buckets()[1].begin);
}

// A bucket is closed by the weight that fills it, in the order of backward; one of many equal
// shares is as large as their number says.
TEST(FlatLayout, BucketsOfTheSizeAskedFor) {
  const PrecisionPolicy policy = precision_policy("bf16");
  const Model model = random_model(23, policy);
  std::vector<std::int64_t> sizes;  // in the order of backward
  std::int64_t all = 0, largest = 0;
  for (auto unit = model.units.rbegin(); unit != model.units.rend(); ++unit) {
    for (auto it = unit->parameters.rbegin(); it != unit->parameters.rend(); ++it) {
      sizes.push_back((*it)->num_local_elements());
      all += sizes.back();
      largest = std::max(largest, sizes.back());
    }
  }
  const auto slots_a_bucket = [&](const FlatLayoutOptions& options) {
    std::vector<std::size_t> counts;
    const FlatLayout layout(model.units, options, policy);
    for (const FlatBucket& bucket : layout.buckets()) {
      counts.push_back(bucket.slots.size());
    }
    return counts;
  };
  const auto filled = [&](std::int64_t full) {
    std::vector<std::size_t> counts;
    std::int64_t elements = 0;
    bool open = false;
    for (const std::int64_t size : sizes) {
      if (!open) counts.push_back(0);
      ++counts.back();
      elements = open ? elements + size : size;
      open = elements < full;
    }
    return counts;
  };
  ASSERT_GT(sizes.size(), 6U);
  for (const std::int64_t size :
       {std::int64_t{1}, largest / 3, largest, 2 * largest, all - 1, all, 10 * all}) {
    EXPECT_EQ(slots_a_bucket({.bucket_elements = size}), filled(size)) << size;
    // Whatever the number of shards and the bytes of an element.
    EXPECT_EQ(slots_a_bucket({.num_shards = 3, .bucket_elements = size, .bucket_bytes = 1}),
              filled(size))
        << size;
  }
  EXPECT_EQ(slots_a_bucket({.bucket_elements = 1}).size(), sizes.size());
  EXPECT_EQ(slots_a_bucket({.bucket_elements = all}).size(), 1U);
  for (const std::int64_t count : {1, 2, 3, 5}) {
    const auto buckets = slots_a_bucket({.num_buckets = count});
    EXPECT_EQ(buckets, filled((all + count - 1) / count)) << count;
    EXPECT_LE(buckets.size(), static_cast<std::size_t>(count));
  }
  EXPECT_EQ(slots_a_bucket({.num_buckets = 1}).size(), 1U);
  EXPECT_GT(slots_a_bucket({.num_buckets = 3}).size(), 1U);
}

TEST(FlatLayout, NothingToHold) {
  const FlatLayout layout({}, {}, precision_policy("fp32"));
  EXPECT_EQ(layout.num_elements(), 0);
  EXPECT_TRUE(layout.buckets().empty());
  EXPECT_TRUE(segments_in(layout, 0, 100).empty());
  EXPECT_THROW((void)layout.shard_range(0, 0), Error);
}

TEST(FlatLayout, RefusesAnotherDtype) {
  Model model = random_model(5, precision_policy("fp64"));
  EXPECT_THROW(FlatLayout(model.units, {}, precision_policy("fp32")), Error);
}

}  // namespace
}  // namespace pentatron::distributed
