// SPDX-License-Identifier: Apache-2.0
// What a store holds at once while units run, told by the allocator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "pentatron/distributed/parameter_store.h"
#include "pentatron/distributed/test_support.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

using testing_support::make_grid;
using testing_support::make_spec;

constexpr int kUnits = 6;
constexpr std::int64_t kUnitElements = 4096;
constexpr std::int64_t kRanks = 2;

// Elements that are alive, and the most that ever were, by dtype.
class LiveAllocator final : public BufferAllocator {
 public:
  struct Counts {
    std::map<DType, std::int64_t> lasting, most;
  };
  explicit LiveAllocator(Counts& counts) : counts_(counts) {}

  Tensor allocate(std::int64_t num_elements, DType dtype, Device device) override {
    counts_.lasting[dtype] += num_elements;
    return tensor::zeros({num_elements}, dtype, device);
  }
  Tensor allocate_transient(std::int64_t num_elements, DType dtype, Device device) override {
    Tensor made = tensor::full({num_elements}, std::nan(""), dtype, device);
    blocks_.push_back({made.storage().getWeakStorageImpl(), dtype, num_elements});
    std::int64_t alive = 0;
    for (const Block& block : blocks_) {
      if (block.dtype == dtype && !block.storage.expired()) alive += block.elements;
    }
    counts_.most[dtype] = std::max(counts_.most[dtype], alive);
    return made;
  }

 private:
  struct Block {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    DType dtype;
    std::int64_t elements;
  };
  Counts& counts_;
  std::vector<Block> blocks_;
};

// Units of one weight each.
struct Model {
  explicit Model(const PrecisionPolicy& policy) {
    for (int unit = 0; unit < kUnits; ++unit) {
      const std::string name = "w" + std::to_string(unit);
      weights.push_back(
          std::make_unique<nn::Parameter>(name, make_spec(name, {kUnitElements}), policy));
      units.push_back({name, {weights.back().get()}});
    }
  }
  [[nodiscard]] nn::Parameter& weight(int unit) { return *weights[static_cast<std::size_t>(unit)]; }
  std::vector<std::unique_ptr<nn::Parameter>> weights;
  std::vector<nn::Unit> units;
};

void write_grad(nn::Parameter& weight) {
  const GradSlot slot = weight.grad_slot();
  if (slot.accumulate) {
    slot.buffer.add_(1.0);
  } else {
    slot.buffer.fill_(1.0);
  }
}

// Steps of three micro-batches; parameters are bf16, gradients fp32, so that each is counted apart.
void train(ParameterStore& store, Model& model) {
  for (int step = 0; step < 3; ++step) {
    store.begin_step();
    for (int m = 0; m < 3; ++m) {
      if (m == 2) store.begin_last_micro_batch(0, kUnits);
      for (int unit = 0; unit < kUnits; ++unit) {
        store.on_forward_begin(unit);
        EXPECT_TRUE(model.weight(unit).forward_weight().defined());
        store.on_forward_end(unit);
      }
      for (int unit = kUnits; unit-- > 0;) {
        store.on_backward_begin(unit);
        EXPECT_TRUE(model.weight(unit).backward_weight().defined());
        write_grad(model.weight(unit));
        store.on_backward_end(unit);
      }
    }
    store.finish_step();
    for (const Piece& piece : store.pieces()) {
      EXPECT_EQ(piece.grad.min().item<double>(), 3.0 * kRanks);
      EXPECT_EQ(piece.grad.max().item<double>(), 3.0 * kRanks);
    }
    store.publish();
  }
  store.settle();
}

std::vector<LiveAllocator::Counts> counted(Sharding sharding) {
  std::vector<LiveAllocator::Counts> all(kRanks);
  comm::run_threads({.world_size = kRanks, .threads_per_rank = 1}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, make_grid({.dp_inner = kRanks}));
    const PrecisionPolicy policy = precision_policy("bf16");
    Model model(policy);
    LiveAllocator::Counts& counts = all[static_cast<std::size_t>(backend.rank())];
    ParameterStore store(model.units, context, {.sharding = sharding, .bucket_bytes = 8}, policy,
                         Device("cpu"), std::make_unique<LiveAllocator>(counts));
    counts.most.clear();  // the making fills unit by unit
    train(store, model);
  });
  return all;
}

// A rank's own shard, and of whole parameters those of the unit that runs and of the next.
TEST(StoreMemory, ShardedParametersAreTwoGatheredUnitsBesideTheShard) {
  for (const LiveAllocator::Counts& counts : counted(Sharding::kParameters)) {
    EXPECT_EQ(counts.lasting.at(DType::BFloat16), kUnits * kUnitElements / kRanks);
    EXPECT_EQ(counts.most.at(DType::BFloat16), 2 * kUnitElements);
  }
}

// Whole gradients are those of the unit that runs and of the two whose reductions are under way.
TEST(StoreMemory, ShardedGradientsAreNeverAllHeld) {
  for (const Sharding sharding : {Sharding::kGradients, Sharding::kParameters}) {
    for (const LiveAllocator::Counts& counts : counted(sharding)) {
      EXPECT_GE(counts.most.at(DType::Float), kUnitElements);
      EXPECT_LE(counts.most.at(DType::Float), 3 * kUnitElements);
    }
  }
}

}  // namespace
}  // namespace pentatron::distributed
