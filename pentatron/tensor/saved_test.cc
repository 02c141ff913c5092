// SPDX-License-Identifier: Apache-2.0
// Saved activations under each policy: kept, rebuilt, offloaded, and one of a user's own.
#include "pentatron/tensor/saved.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/offload_activations.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/rebuild_activations.h"

namespace pentatron {
namespace {

constexpr SaveSite kSite{.op = "Reader", .unit = 3};
constexpr std::int64_t kElements = 64 * 1024;
constexpr std::int64_t kBytes = kElements * 8;

Tensor normal(std::uint64_t seed, const Shape& shape = {64, 1024}) {
  Tensor t = tensor::empty(shape, DType::Double);
  tensor::fill_normal_keyed(t, seed, "saved", 1.0, shape, Shape(shape.size(), 0));
  return t;
}

TEST(Saved, KeepsTheVeryMemoryWithoutAPolicy) {
  const Tensor x = normal(1).requires_grad_(true);
  Saved saved(x, nullptr, kSite);
  const Saved copy = saved;
  EXPECT_EQ(saved.get().const_data_ptr(), x.const_data_ptr());
  EXPECT_FALSE(saved.get().requires_grad());
  saved.release();
  EXPECT_FALSE(saved.defined());
  EXPECT_THROW((void)saved.get(), Error);
  EXPECT_TRUE(copy.get().equal(x));
  EXPECT_FALSE(Saved(Tensor(), nullptr, kSite).defined());
}

TEST(RebuildActivations, MakesAnOutputAgainOnceForAllWhoSavedIt) {
  tensor::RebuildActivations policy({"Triple"});
  EXPECT_TRUE(policy.wants_rebuild({.op = "Triple"}));
  EXPECT_FALSE(policy.wants_rebuild({.op = "Other"}));
  const Tensor x = normal(1);
  Tensor y = x.mul(3.0);
  const Tensor expected = y.clone();
  policy.can_rebuild(y, [saved = Saved(x)] { return saved.get().mul(3.0); });
  Saved first(y, &policy, kSite), second(y, &policy, kSite);
  const Saved part(y.narrow(0, 0, 2), &policy, kSite);  // another activation: kept
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory = y.storage().getWeakStorageImpl();
  y = Tensor();
  EXPECT_FALSE(memory.expired()) << "a kept view keeps the whole";
  EXPECT_EQ(policy.num_waiting(), 1u);
  EXPECT_TRUE(first.get().equal(expected));
  EXPECT_EQ(first.get().const_data_ptr(), second.get().const_data_ptr());
  EXPECT_EQ(policy.num_rebuilt(), 1);
  first.release();
  EXPECT_TRUE(second.get().equal(expected));
  second.release();
  EXPECT_EQ(policy.num_waiting(), 0u);
}

TEST(RebuildActivations, HoldsNeitherTheOutputNorOffersThatNobodyTook) {
  tensor::RebuildActivations policy({"Triple"});
  const Tensor x = normal(1);
  const tensor::MemoryMeter meter;
  Saved saved;
  {
    const Tensor y = x.mul(3.0);
    policy.can_rebuild(y, [x] { return x.mul(3.0); });
    saved = Saved(y, &policy, kSite);
    EXPECT_GE(meter.current_bytes(), kBytes);
  }
  EXPECT_LT(meter.current_bytes(), kBytes / 8);
  Saved input;
  {
    const Tensor unused = x.mul(4.0);
    policy.can_rebuild(unused, [kept = Saved(x.mul(5.0))] { return kept.get(); });
  }
  EXPECT_GE(meter.current_bytes(), kBytes) << "the offer's own input";
  const Tensor small = normal(2, {2});
  policy.can_rebuild(small, [small] { return small; });
  EXPECT_LT(meter.current_bytes(), kBytes / 8) << "went with the next offer";
  EXPECT_TRUE(saved.get().equal(x.mul(3.0)));
}

TEST(RebuildActivations, RefusesOtherValuesThanWereSaved) {
  tensor::RebuildActivations policy({"Triple"});
  const Tensor y = normal(1);
  policy.can_rebuild(y, [] { return normal(1, {2, 2}); });
  const Saved saved(y, &policy, kSite);
  EXPECT_THROW((void)saved.get(), Error);
}

constexpr std::int64_t kLeast = 256;  // elements of what is sent to the host

// What the last unit saved has left the device.
void run_two_units(tensor::OffloadActivations& policy, int after) {
  policy.begin_unit(after + 1, 0);
  policy.begin_unit(after + 2, 0);
}

TEST(OffloadActivations, GivesTheBitsBackAndFreesTheOriginal) {
  tensor::OffloadActivations policy(kCpu, kLeast);
  policy.begin_unit(kSite.unit, 0);
  Tensor x = normal(1);
  const Tensor expected = x.clone();
  const Saved first(x, &policy, kSite);
  Saved second(x, &policy, kSite);
  const Saved columns(x.narrow(1, 5, 512), &policy, kSite);  // a view is an activation of its own
  const Saved row(x.view({-1}), &policy, kSite);             // another shape is not
  EXPECT_EQ(policy.host_bytes(), kBytes + kBytes / 2) << "saved twice, copied once";
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory = x.storage().getWeakStorageImpl();
  x = Tensor();
  EXPECT_FALSE(memory.expired()) << "the copy may still read it";
  run_two_units(policy, kSite.unit);
  EXPECT_TRUE(memory.expired());
  EXPECT_TRUE(first.get().equal(expected));
  EXPECT_EQ(first.get().const_data_ptr(), second.get().const_data_ptr());
  EXPECT_EQ(first.get().const_data_ptr(), row.get().const_data_ptr());
  EXPECT_EQ(row.get().sizes(), IntList({kElements}));
  EXPECT_TRUE(columns.get().equal(expected.narrow(1, 5, 512)));
  second.release();
  EXPECT_EQ(policy.host_bytes(), kBytes + kBytes / 2);
}

TEST(OffloadActivations, WhatIsWantedBeforeItLeftIsNotCopiedBack) {
  tensor::OffloadActivations policy(kCpu, kLeast);
  policy.begin_unit(kSite.unit, 0);
  const Tensor x = normal(1);
  const Saved saved(x, &policy, kSite);
  policy.end_units();
  EXPECT_EQ(saved.get().const_data_ptr(), x.const_data_ptr());
  run_two_units(policy, kSite.unit);
  EXPECT_EQ(saved.get().const_data_ptr(), x.const_data_ptr()) << "backward had come to it";
}

TEST(OffloadActivations, BystandersShareWhatIsSent) {
  tensor::OffloadActivations policy(kCpu, kLeast);
  policy.begin_unit(kSite.unit, 0);
  Tensor x = normal(1), kept = normal(2);
  const Tensor expected = x.clone();
  // One that kept it before it was sent, and one that comes after.
  const Saved before(x, &policy.bystanders(), kSite);
  const Saved sent(x.view({-1}), &policy, kSite);
  const Saved after(x, &policy.bystanders(), kSite);
  const Saved other(kept, &policy.bystanders(), kSite);
  EXPECT_EQ(policy.host_bytes(), kBytes);
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory = x.storage().getWeakStorageImpl();
  x = Tensor();
  run_two_units(policy, kSite.unit);
  EXPECT_TRUE(memory.expired());
  EXPECT_EQ(other.get().const_data_ptr(), kept.const_data_ptr());
  for (const Saved* saved : {&before, &sent, &after}) {
    EXPECT_TRUE(saved->get().view({-1}).equal(expected.view({-1})));
  }
}

TEST(OffloadActivations, KeepsSmallOnesAndUsesItsMemoryAgain) {
  tensor::OffloadActivations policy(kCpu, kLeast);
  const Tensor small = normal(1, {8});
  EXPECT_EQ(Saved(small, &policy, kSite).get().const_data_ptr(), small.const_data_ptr());
  std::int64_t allocations = 0;
  for (int step = 0; step < 300; ++step) {
    std::vector<Saved> saved;
    for (int unit = 0; unit < 3; ++unit) {
      policy.begin_unit(unit, 0);
      const SaveSite site{.op = "Reader", .unit = unit};
      saved.emplace_back(normal(2 + unit, {16, 16}), &policy, site);
      // Lengths change from step to step.
      saved.emplace_back(normal(5 + unit, {20 + step % 9, 16}), &policy, site);
    }
    policy.end_units();
    for (int i = 5; i >= 0; --i) {
      const Shape shape = i % 2 == 0 ? Shape{16, 16} : Shape{20 + step % 9, 16};
      EXPECT_TRUE(saved[i].get().equal(normal(i % 2 == 0 ? 2 + i / 2 : 5 + i / 2, shape)));
    }
    if (step == 0) allocations = policy.num_host_allocations();
    EXPECT_EQ(policy.num_host_allocations(), allocations) << "in step " << step;
    EXPECT_EQ(policy.host_bytes(), 3 * (16 * 16 + (20 + step % 9) * 16) * 8);
  }
  EXPECT_EQ(policy.host_bytes(), 0);
  EXPECT_EQ(policy.host_capacity(), 3 * (16 * 16 * 8 + 512 * 8));
}

TEST(OffloadActivations, FetchesAUnitAhead) {
  tensor::OffloadActivations policy(kCpu, kLeast);
  std::vector<Saved> saved;  // of two units of two micro-batches
  for (const int micro_batch : {0, 1}) {
    for (const int unit : {1, 2}) {
      policy.begin_unit(unit, micro_batch);
      saved.emplace_back(normal(10 * micro_batch + unit), &policy,
                         SaveSite{.op = "Reader", .unit = unit, .micro_batch = micro_batch});
    }
  }
  run_two_units(policy, 3);
  const tensor::MemoryMeter meter;
  policy.fetch_ahead(7, 0);
  policy.fetch_ahead(1, 2);
  EXPECT_LT(meter.current_bytes(), kBytes / 8);
  // The last unit's, and with them those of the unit before: of that micro-batch alone.
  EXPECT_TRUE(saved[3].get().equal(normal(12)));
  EXPECT_GE(meter.current_bytes(), 2 * kBytes);
  EXPECT_LT(meter.current_bytes(), 2 * kBytes + kBytes / 8);
  EXPECT_TRUE(saved[2].get().equal(normal(11)));
  EXPECT_LT(meter.current_bytes(), 2 * kBytes + kBytes / 8) << "it was there";
  policy.fetch_ahead(1, 0);
  EXPECT_GE(meter.current_bytes(), 3 * kBytes);
  EXPECT_TRUE(saved[1].get().equal(normal(2)));
  EXPECT_TRUE(saved[0].get().equal(normal(1)));
}

// Policies are open: what another module would write. Halves the memory and loses digits.
class Narrowed final : public SavePolicy {
 public:
  std::shared_ptr<SavedSlot> slot_for(const Tensor& activation, const SaveSite&) override {
    class Slot final : public SavedSlot {
     public:
      explicit Slot(const Tensor& t) : narrow_(t.to(DType::Float)) {}
      Tensor get() override { return narrow_.to(DType::Double); }

     private:
      Tensor narrow_;
    };
    return std::make_shared<Slot>(activation);
  }
};

TEST(Saved, APolicyOfAUsersOwn) {
  Narrowed policy;
  const Tensor x = normal(1);
  const tensor::MemoryMeter meter;
  const Saved saved(x, &policy, kSite);
  EXPECT_LT(meter.current_bytes(), kBytes / 2 + kBytes / 8);
  EXPECT_TRUE(saved.get().equal(x.to(DType::Float).to(DType::Double)));
}

}  // namespace
}  // namespace pentatron
