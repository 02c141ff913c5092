// SPDX-License-Identifier: Apache-2.0
// The padded vocabulary inside the softmax: a model of as many true rows, in every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr std::int64_t kPadded = 64;

struct Result {
  Tensors gradients;
  Tensors parameters;
  double loss = 0;
  std::int64_t num_parameters = 0;  // of rank 0
};

config::RunConfig config_of(const Layout& layout, const ChangeConfig& change) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.optimizer.adam_eps = 1e-3;
    change(c);
  });
}

void pad_inside(config::RunConfig& c) { c.model.pad_vocab_in_softmax = true; }
void pad_outside(config::RunConfig&) {}
void all_true(config::RunConfig& c) { c.model.vocab_size = kPadded; }

Result train(const config::RunConfig& config) {
  Result result;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    Result mine;
    mine.num_parameters = engine.num_local_parameters();
    mine.loss = engine.forward_backward(micro_batches(engine, 0)).loss;
    mine.gradients = engine.gather_gradients();
    (void)train_steps(engine, 0, 3);
    mine.parameters = engine.gather_parameters();
    const std::lock_guard lock(mutex);
    if (engine.context().world().rank() == 0) result = std::move(mine);
  });
  return result;
}

TEST(PadVocabInSoftmax, IsAModelOfAsManyTrueRows) {
  const Result expected = train(config_of({}, all_true));
  const Result outside = train(config_of({}, pad_outside));
  // All tokens are about as likely at first.
  EXPECT_NEAR(expected.loss - outside.loss, std::log(64.0 / kVocabulary), 0.02);
  EXPECT_EQ(expected.num_parameters - outside.num_parameters, (kPadded - kVocabulary) * 32);
  for (const Layout& layout : std::vector<Layout>{
           {}, {.tp = 2}, {.pp = 2}, {.dp = 2, .sharded = true}, {.tp = 2, .pp = 2, .dp = 2}}) {
    const Result inside = train(config_of(layout, pad_inside));
    EXPECT_NEAR(inside.loss, expected.loss, 1e-12 * expected.loss);
    EXPECT_LE(worst_difference(inside.gradients, expected.gradients), 1e-11);
    EXPECT_LE(worst_difference(inside.parameters, expected.parameters), 1e-10);
    if (layout.tp * layout.pp == 1) EXPECT_EQ(inside.num_parameters, expected.num_parameters);
  }
}

TEST(PadVocabInSoftmax, AnotherPaddingIsAnotherModel) {
  const config::RunConfig saved = config_of({}, pad_inside);
  config::RunConfig asked = saved;
  asked.model.padded_vocab_size = 128;
  EXPECT_EQ(json_differences(model_identity(saved), model_identity(asked)),
            "padded_vocab_size 64 in the checkpoint, 128 asked");
  // Outside the softmax the padding is the layout's business.
  config::RunConfig outside = config_of({}, pad_outside);
  const std::string identity = model_identity(outside);
  outside.model.padded_vocab_size = 128;
  EXPECT_EQ(model_identity(outside), identity);
}

}  // namespace
}  // namespace pentatron::training
