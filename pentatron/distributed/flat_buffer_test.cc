// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/flat_buffer.h"

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
      nn::Parameter& parameter = *model.parameters.back();
      const std::int64_t n = parameter.num_local_elements();
      parameter.data().copy_(tensor::arange(n, DType::Double)
                                 .add(unit * 100 + i)
                                 .sin()
                                 .view(parameter.data().sizes()));
      model.units.back().parameters.push_back(&parameter);
    }
  }
  return model;
}

void check_layout(const FlatBuffer& buffer, const FlatBufferOptions& options,
                  const PrecisionPolicy& policy) {
  std::int64_t cursor = 0;
  std::size_t next_slot = 0;
  int previous_unit = 1 << 20;
  for (std::size_t b = 0; b < buffer.buckets().size(); ++b) {
    const FlatBucket& bucket = buffer.buckets()[b];
    EXPECT_EQ(bucket.begin, cursor) << "buckets follow each other";
    for (const DType dtype : {policy.parameter, policy.main_grad}) {
      const std::int64_t bytes = (bucket.end - bucket.begin) * tensor::item_bytes(dtype);
      EXPECT_EQ(bytes % (options.reduction_size * 256), 0);
    }
    std::int64_t filled = bucket.begin;
    std::vector<int> units;
    for (const std::size_t s : bucket.slots) {
      const FlatSlot& slot = buffer.slots()[s];
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
    for (std::int64_t r = 0; r < options.reduction_size; ++r) {
      const auto [from, to] = buffer.shard_range(b, r);
      EXPECT_EQ(from, shard_end);
      EXPECT_EQ((to - from) * options.reduction_size, bucket.end - bucket.begin);
      shard_end = to;
    }
    EXPECT_EQ(shard_end, bucket.end);
  }
  EXPECT_EQ(cursor, buffer.num_elements());
  EXPECT_EQ(next_slot, buffer.slots().size());
}

// Any cut gives segments that cover every real element of every part once and no padding.
void check_segments(FlatBuffer& buffer,
                    const std::vector<std::pair<std::int64_t, std::int64_t>>& cuts) {
  std::map<std::string, std::map<std::int64_t, FlatSegment>> found;
  Tensor real = tensor::zeros({buffer.num_elements()}, DType::Long);
  for (const auto& [begin, end] : cuts) {
    std::int64_t last = begin;
    for (const FlatSegment& segment : segments_in(buffer, begin, end)) {
      EXPECT_GT(segment.length, 0);
      EXPECT_GE(segment.flat_begin, last);
      last = segment.flat_begin + segment.length;
      EXPECT_LE(last, end);
      real.narrow(0, segment.flat_begin, segment.length).add_(1);
      EXPECT_TRUE(found[segment.part->name].emplace(segment.box_begin, segment).second);
    }
  }
  std::int64_t total = 0;
  for (const FlatSlot& slot : buffer.slots()) {
    for (const nn::ShardPart& part : slot.parameter->spec().parts) {
      const Tensor whole = nn::part_view(slot.parameter->data(), part).reshape({-1});
      std::int64_t next = 0;
      for (const auto& [box_begin, segment] : found[part.name]) {
        EXPECT_EQ(box_begin, next) << part.name;
        next += segment.length;
        EXPECT_TRUE(buffer.parameters()
                        .narrow(0, segment.flat_begin, segment.length)
                        .equal(whole.narrow(0, box_begin, segment.length)));
      }
      EXPECT_EQ(next, part.box.num_elements()) << part.name;
      total += next;
    }
  }
  EXPECT_EQ(real.sum().item<std::int64_t>(), total);
  EXPECT_LE(real.max().item<std::int64_t>(), 1);
}

TEST(FlatBuffer, LayoutOfRandomModels) {
  const auto allocator = make_default_allocator();
  unsigned seed = 0;
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const PrecisionPolicy policy = precision_policy(precision);
    for (const std::int64_t reduction : {1, 2, 3, 8}) {
      for (const std::int64_t bucket_bytes : {1, 5000, 20000, 40 << 20}) {
        SCOPED_TRACE(testing::Message() << precision << ", reduction " << reduction << ", bucket "
                                        << bucket_bytes << ", seed " << ++seed);
        Model model = random_model(seed, policy);
        std::vector<Tensor> before;
        for (const auto& p : model.parameters) before.push_back(p->data().clone());
        const FlatBufferOptions options{.reduction_size = reduction, .bucket_bytes = bucket_bytes};
        FlatBuffer buffer(model.units, options, *allocator, policy, Device("cpu"));
        EXPECT_EQ(buffer.slots().size(), model.parameters.size());
        check_layout(buffer, options, policy);
        for (std::size_t i = 0; i < before.size(); ++i) {
          EXPECT_TRUE(model.parameters[i]->data().equal(before[i])) << "values move along";
        }
        std::vector<std::pair<std::int64_t, std::int64_t>> shards;
        std::vector<std::pair<std::int64_t, std::int64_t>> odd;
        for (std::size_t b = 0; b < buffer.buckets().size(); ++b) {
          for (std::int64_t r = 0; r < reduction; ++r) shards.push_back(buffer.shard_range(b, r));
        }
        for (std::int64_t at = 0; at < buffer.num_elements(); at += 17) {
          odd.push_back({at, std::min(at + 17, buffer.num_elements())});
        }
        check_segments(buffer, {{0, buffer.num_elements()}});
        check_segments(buffer, shards);
        check_segments(buffer, odd);
      }
    }
  }
}

TEST(FlatBuffer, GradientsAndStorageAreViews) {
  const PrecisionPolicy policy = precision_policy("bf16");
  Model model = random_model(3, policy);
  const auto allocator = make_default_allocator();
  FlatBuffer buffer(model.units, {}, *allocator, policy, Device("cpu"));
  EXPECT_EQ(buffer.grads().scalar_type(), policy.main_grad);
  EXPECT_EQ(buffer.parameters().scalar_type(), policy.parameter);
  EXPECT_EQ(buffer.grads().abs().max().item<double>(), 0.0);
  for (const FlatSlot& slot : buffer.slots()) {
    if (slot.begin == slot.end) continue;
    slot.parameter->main_grad().fill_(3);
    slot.parameter->data().fill_(5);
    const Tensor grads = buffer.grads().narrow(0, slot.begin, slot.end - slot.begin);
    const Tensor values = buffer.parameters().narrow(0, slot.begin, slot.end - slot.begin);
    EXPECT_EQ(grads.min().item<double>(), 3.0);
    EXPECT_EQ(values.min().item<double>(), 5.0);
  }
  // Nothing but the parameters was touched.
  double filled = 0;
  for (const FlatSlot& slot : buffer.slots()) filled += static_cast<double>(slot.end - slot.begin);
  EXPECT_EQ(buffer.grads().sum().item<double>(), 3 * filled);
}

TEST(FlatBuffer, WithoutParametersStorageStays) {
  const PrecisionPolicy policy = precision_policy("fp32");
  Model model = random_model(4, policy);
  const void* before = model.parameters[0]->data().const_data_ptr();
  const auto allocator = make_default_allocator();
  FlatBuffer buffer(model.units, {.parameters_too = false}, *allocator, policy, Device("cpu"));
  EXPECT_FALSE(buffer.parameters().defined());
  EXPECT_EQ(model.parameters[0]->data().const_data_ptr(), before);
  EXPECT_TRUE(model.parameters[0]->main_grad().defined());
}

// Counts what it gives and cuts it from one block, as registered memory would be.
class CountingAllocator final : public BufferAllocator {
 public:
  Tensor allocate(std::int64_t num_elements, DType dtype, Device device) override {
    given.push_back({num_elements, dtype});
    tensors.push_back(tensor::zeros({num_elements}, dtype, device));
    return tensors.back();
  }
  std::vector<std::pair<std::int64_t, DType>> given;
  std::vector<Tensor> tensors;
};

TEST(FlatBuffer, AllMemoryComesFromTheAllocator) {
  const PrecisionPolicy policy = precision_policy("bf16");
  for (const bool parameters_too : {true, false}) {
    Model model = random_model(6, policy);
    CountingAllocator allocator;
    FlatBuffer buffer(model.units, {.reduction_size = 2, .parameters_too = parameters_too},
                      allocator, policy, Device("cpu"));
    std::vector<std::pair<std::int64_t, DType>> expected = {
        {buffer.num_elements(), policy.main_grad}};
    if (parameters_too) expected.push_back({buffer.num_elements(), policy.parameter});
    EXPECT_EQ(allocator.given, expected);
    EXPECT_TRUE(buffer.grads().is_alias_of(allocator.tensors[0]));
    for (const auto& parameter : model.parameters) {
      EXPECT_TRUE(parameter->main_grad().is_alias_of(allocator.tensors[0]));
      EXPECT_EQ(parameters_too, parameter->data().is_alias_of(allocator.tensors.back()));
    }
  }
}

TEST(FlatBuffer, HoldsTheParametersOfOneGrid) {
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
  const auto allocator = make_default_allocator();
  const FlatBuffer dense(mixed, {.grid = "dense"}, *allocator, policy, Device("cpu"));
  const FlatBuffer expert(mixed, {.reduction_axes = {"dp"}, .grid = "expert"}, *allocator, policy,
                          Device("cpu"));
  EXPECT_EQ(dense.slots().size(), model.parameters.size());
  EXPECT_EQ(expert.slots().size(), experts.size() - 1);
  for (const FlatSlot& slot : expert.slots()) EXPECT_EQ(slot.parameter->local_name(), "expert");
  EXPECT_TRUE(dense.frozen().empty());
  EXPECT_EQ(expert.frozen(), std::vector<nn::Parameter*>{experts[2].get()});
  EXPECT_EQ(dense.reduction_axes(), (std::vector<std::string>{"dp", "cp"}));
  EXPECT_EQ(expert.reduction_axes(), std::vector<std::string>{"dp"});
  // Without a choice two grids would share one reduction group.
  EXPECT_THROW(FlatBuffer(mixed, {}, *allocator, policy, Device("cpu")), Error);
  nn::ShardSpec both = experts[0]->spec();
  both.parts.push_back(both.parts.back());
  both.parts.back().name = "other";
  both.parts.back().local_row_begin = both.local_shape[0];
  both.local_shape[0] += both.parts.back().local_rows;
  both.parts.back().grid = "dense";
  nn::Parameter split("split", both, policy);
  EXPECT_THROW(FlatBuffer({{"split", {&split}}}, {}, *allocator, policy, Device("cpu")), Error);
}

TEST(FlatBuffer, FrozenWeightsHaveNoPlaceAndTiedOnesABucket) {
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
  const auto allocator = make_default_allocator();
  const FlatBuffer buffer({{"embedding", {embedding.get()}},
                           {"layer", {frozen.get(), weight.get()}},
                           {"head", {norm.get()}}},
                          {}, *allocator, policy, Device("cpu"));
  ASSERT_EQ(buffer.slots().size(), 3U);
  EXPECT_EQ(buffer.slots()[0].parameter, norm.get());
  EXPECT_EQ(buffer.slots()[1].parameter, weight.get());
  ASSERT_EQ(buffer.buckets().size(), 2U);
  EXPECT_EQ(buffer.buckets()[0].units, (std::vector<int>{2, 1}));
  EXPECT_EQ(buffer.buckets()[1].units, std::vector<int>{0});
  EXPECT_FALSE(frozen->main_grad().defined());
  EXPECT_EQ(buffer.frozen(), std::vector<nn::Parameter*>{frozen.get()});
}

TEST(FlatBuffer, NothingToHold) {
  const auto allocator = make_default_allocator();
  FlatBuffer buffer({}, {}, *allocator, precision_policy("fp32"), Device("cpu"));
  EXPECT_EQ(buffer.num_elements(), 0);
  EXPECT_TRUE(buffer.buckets().empty());
  EXPECT_TRUE(segments_in(buffer, 0, 100).empty());
  EXPECT_THROW((void)buffer.shard_range(0, 0), Error);
}

TEST(FlatBuffer, RefusesAnotherDtype) {
  const auto allocator = make_default_allocator();
  Model model = random_model(5, precision_policy("fp64"));
  EXPECT_THROW(FlatBuffer(model.units, {}, *allocator, precision_policy("fp32"), Device("cpu")),
               Error);
}

}  // namespace
}  // namespace pentatron::distributed
