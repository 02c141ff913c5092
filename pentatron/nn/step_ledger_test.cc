// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/step_ledger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/base/test_support.h"
#include "pentatron/nn/module.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::nn {
namespace {

Tensor scalar(double value, DType dtype = DType::Double) { return tensor::scalar(value, dtype); }

Batch batch_of(std::int64_t valid) {
  Batch batch;
  batch.sequences[std::string(Batch::kText)] = SequenceLayout({.boundaries = {0, 8}});
  const Tensor mask = tensor::zeros({8}, DType::Float);
  mask.narrow(0, 0, valid).fill_(1);
  batch.fields["loss_mask"] = mask;
  return batch;
}

std::vector<LedgerEntry> entries() {
  return {{.name = "routed", .kind = ScalarKind::kSum, .size = 3},
          token_loss("lm loss"),
          {.name = "largest", .kind = ScalarKind::kMax},
          {.name = "aux loss",
           .kind = ScalarKind::kLoss,
           .count = [](const Batch& b) { return scalar(static_cast<double>(b.num_tokens())); },
           .coefficient = 0.5},
          {.name = "entropy", .kind = ScalarKind::kMean},
          {.name = "dropped", .kind = ScalarKind::kSum},
          {.name = "norm", .kind = ScalarKind::kResult},
          {.name = "zeros", .kind = ScalarKind::kResult}};
}

StepLedger make(bool counts_copies = true) {
  return StepLedger(entries(), DType::Float, kCpu, counts_copies);
}

TEST(StepLedger, EachLossHasItsCountAndSeed) {
  StepLedger ledger = make();
  ledger.begin({batch_of(3), batch_of(1)});
  ledger.set_seeds(scalar(8));
  EXPECT_EQ(ledger.seed_of("lm loss").item<double>(), 8.0 / 4);
  EXPECT_EQ(ledger.seed_of("aux loss").item<double>(), 0.5 * 8 / 16);
  EXPECT_EQ(ledger.seed_of("lm loss").scalar_type(), DType::Float);
  ledger.add_sum("lm loss", scalar(3, DType::Float));
  ledger.add_sum("lm loss", scalar(5, DType::Float));
  ledger.add_sum("aux loss", scalar(4));
  ledger.add_sum("routed", tensor::from_vector(std::vector<double>{1, 2, 3}));
  ledger.add_sum("routed", tensor::from_vector(std::vector<double>{1, 0, 1}));
  ledger.add_mean("entropy", scalar(6), scalar(4));
  ledger.add_sum("dropped", scalar(2));
  ledger.add_max("largest", scalar(-7));
  ledger.add_max("largest", scalar(-9, DType::Float));
  ledger.set_result("norm", scalar(1.5));
  EXPECT_EQ(ledger.objective().item<double>(), 8.0 / 4 + 0.5 * 4 / 16);
  EXPECT_TRUE(ledger.sum_of("routed").equal(tensor::from_vector(std::vector<double>{2, 2, 4})));
  const StepScalars scalars = ledger.read();
  EXPECT_EQ(scalars.find("lm loss"), 2);
  EXPECT_EQ(scalars.find("lm loss count"), 4);
  EXPECT_EQ(scalars.find("aux loss"), 0.25) << "logged without its coefficient";
  EXPECT_EQ(scalars.find("entropy"), 1.5);
  EXPECT_EQ(scalars.find("dropped"), 2);
  EXPECT_EQ(scalars.find("largest"), -7);
  EXPECT_EQ(scalars.find("norm"), 1.5);
  EXPECT_FALSE(scalars.find("zeros")) << "was not set";
  EXPECT_FALSE(scalars.find("routed")) << "a vector";
  // The next step starts anew, in the same memory.
  const void* memory = ledger.sums().data_ptr();
  ledger.begin({batch_of(2)});
  ledger.set_seeds(scalar(1));
  EXPECT_EQ(ledger.sums().data_ptr(), memory);
  EXPECT_EQ(ledger.seed_of("lm loss").item<double>(), 0.5);
  EXPECT_EQ(ledger.read().find("lm loss"), 0);
  EXPECT_EQ(ledger.read().find("largest"), -HUGE_VAL);
}

TEST(StepLedger, NothingCountedIsNoQuotientOfZeros) {
  StepLedger ledger = make();
  ledger.begin({batch_of(0)});
  ledger.set_seeds(scalar(1));
  EXPECT_EQ(ledger.seed_of("lm loss").item<double>(), 0);
  ledger.add_sum("lm loss", scalar(0));
  EXPECT_EQ(ledger.objective().item<double>(), 0);
  EXPECT_FALSE(ledger.read().find("lm loss"));
  EXPECT_EQ(ledger.read().find("lm loss count"), 0);
  EXPECT_FALSE(ledger.read().find("entropy"));
}

TEST(StepLedger, CopiesAreCountedByOneRank) {
  for (const bool counts : {true, false}) {
    StepLedger ledger = make(counts);
    ledger.begin({batch_of(4)});
    ledger.add_sum("dropped", scalar(1), Share::kTensorCopy);
    ledger.add_sum("dropped", scalar(10), Share::kOwn);
    ledger.add_mean("entropy", scalar(6), scalar(2), Share::kTensorCopy);
    EXPECT_EQ(ledger.sum_of("dropped").item<double>(), counts ? 11 : 10);
    EXPECT_EQ(ledger.read().find("entropy").has_value(), counts);
  }
}

TEST(StepLedger, OtherNamesKindsAndSizesAreRefused) {
  StepLedger ledger = make();
  ledger.begin({batch_of(1)});
  const auto refused = [](const char* part, const auto& call) {
    expect_error(ErrorKind::kInternal, part, call);
  };
  refused("no module declared 'other'", [&] { ledger.add_sum("other", scalar(1)); });
  refused("'largest' is another kind", [&] { ledger.add_sum("largest", scalar(1)); });
  refused("'lm loss' is another kind", [&] { ledger.add_max("lm loss", scalar(1)); });
  refused("'routed' was declared with 3 elements", [&] { ledger.add_sum("routed", scalar(1)); });
  refused("before set_seeds", [&] { (void)ledger.seed_of("lm loss"); });
  refused("only sums and maxima are vectors", [] {
    StepLedger({{.name = "x", .kind = ScalarKind::kMean, .size = 2}}, DType::Float, kCpu, true);
  });
  EXPECT_FALSE(ledger.max_slot("other").defined()) << "not kept in this run";
}

// A child that counts and moves a buffer by what it counted.
class Counter final : public Module {
 public:
  Counter() : total_(tensor::zeros({}, DType::Float)) {
    declare_scalar({.name = "counted", .kind = ScalarKind::kSum});
  }
  void forward(const StepContext& step) const {
    step.add_sum("counted", scalar(1));
    step.add_max("counted most", scalar(1));
  }
  [[nodiscard]] double total() const { return total_.item<double>(); }

 private:
  void commit_own(const StepOutcome& outcome) override {
    outcome.update(total_, total_.add(outcome.sum_of("counted")));
  }
  Tensor total_;
};

class Parent final : public Module {
 public:
  Parent() : child(add_child(std::make_unique<Counter>())) {
    declare_scalar({.name = "counted most", .kind = ScalarKind::kMax});
  }
  Counter& child;
};

TEST(StepLedger, ModulesRecordOnceAndCommitUnlessSkipped) {
  Parent parent;
  std::vector<LedgerEntry> declared;
  parent.for_each_scalar([&](const LedgerEntry& entry) { declared.push_back(entry); });
  ASSERT_EQ(declared.size(), 2U);
  StepLedger ledger(declared, DType::Float, kCpu, true);
  const PrecisionPolicy policy = precision_policy("fp32");
  const Batch batch = batch_of(1);
  ledger.begin({});
  StepContext step{.batch = batch, .policy = policy, .ledger = &ledger};
  parent.child.forward(step);
  step.phase = Phase::kRecompute;
  parent.child.forward(step);  // tells nothing again
  EXPECT_FALSE(step.max_slot("counted most").defined());
  EXPECT_EQ(ledger.read().find("counted"), 1);
  step.ledger = nullptr;
  step.phase = Phase::kTrain;
  parent.child.forward(step);
  parent.commit(StepOutcome(ledger, scalar(1)));
  EXPECT_EQ(parent.child.total(), 0) << "the step was left out";
  parent.commit(StepOutcome(ledger, scalar(0)));
  EXPECT_EQ(parent.child.total(), 1);
}

}  // namespace
}  // namespace pentatron::nn
