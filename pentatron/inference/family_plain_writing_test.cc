// SPDX-License-Identifier: Apache-2.0
// What a config.json of each family becomes, in fp64 against the plain writing: outputs and
// gradients, of documents shorter and longer than the models' windows.
#include <gtest/gtest.h>

#include "pentatron/config/validate.h"
#include "pentatron/families/test_support.h"
#include "pentatron/models/plain_writing_test_support.h"

namespace pentatron::inference {
namespace {

TEST(EveryFamily, EqualsThePlainWritingInFp64) {
  for (const auto& [name, model] : families::test_support::reference_models().items()) {
    SCOPED_TRACE(name);
    config::RunConfig run;
    run.model = families::read_config(model.at("config").dump(), name).model;
    run.model.seq_length = 12;
    run.model.hidden_dropout = run.model.attention_dropout = 0.0;
    config::resolve(run, config::Purpose::kModel);
    config::resolve_vocab(run, run.model.vocab_size);
    test_support::expect_plain_writing(run.model);
    // A mistake of the plain writing would be noticed.
    const Batch batch = test_support::make_batch({{5, 7}, {12}}, run.model.vocab_size);
    const test_support::Tensors weights = test_support::random_weights(run.model);
    const Tensor right = test_support::PlainGpt(run.model, weights).logits(batch);
    for (const auto mistake :
         {test_support::Mistake::kSwappedHeads, test_support::Mistake::kNoCausalMask}) {
      const Tensor wrong = test_support::PlainGpt(run.model, weights, mistake).logits(batch);
      EXPECT_GT(test_support::difference(wrong, right), 1e-3);
    }
  }
}

}  // namespace
}  // namespace pentatron::inference
