// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "pentatron/models/model_test_support.h"
#include "pentatron/models/plain_gpt_test_support.h"

// A model's outputs and gradients beside those of the plain writing. Only tests include it.
namespace pentatron::test_support {

struct Outcome {
  Tensor logits;
  Tensor loss;
  Tensors gradients;
};

// The model on one process; gradients of the loss itself.
inline Outcome run_one(const config::ModelConfig& config, const Tensors& weights,
                       const Batch& batch, const char* precision) {
  Outcome outcome;
  const PrecisionPolicy policy = precision_policy(precision);
  run_layout({1, false}, policy, [&](const parallel_layers::LeafContext& context) {
    const auto stage = models::make_stage("gpt", config, context, config::whole_model(config));
    bind_gradients(*stage, policy);
    load(*stage, weights);
    nn::StepContext step{.batch = batch, .policy = policy};
    step.output = nn::StageOutput::kLogits;
    outcome.logits = stage->forward({}, step).at(0).tensor.detach();
    step.output = nn::StageOutput::kLoss;
    const Tensor loss = stage->forward({}, step).at(0).tensor;
    outcome.loss = loss.detach().reshape({1});
    ops::run_backward(loss, tensor::scalar(1.0, policy.loss));
    Gathered gathered;
    gathered.gradients(*stage);
    outcome.gradients = gathered.tensors();
  });
  return outcome;
}

// Further forms of attention, in fp64 against the plain writing.
inline void expect_plain_writing(const config::ModelConfig& config,
                                 const Tensor& position_axes = {}) {
  Batch batch = make_batch({{5, 7}, {12}}, config.vocab_size);
  if (position_axes.defined()) batch.fields["position_axes"] = position_axes;
  Tensors weights = random_weights(config);
  const Outcome ours = run_one(config, weights, batch, "fp64");
  for (auto& [name, t] : weights) t = t.clone().set_requires_grad(true);
  const PlainGpt plain(config, weights);
  EXPECT_LE(difference(ours.logits, plain.logits(batch).detach()), 1e-10);
  plain.loss(batch).backward();
  Tensors gradients;
  for (const auto& [name, t] : weights) gradients[name] = t.grad();
  const auto [off, name] = worst_difference(ours.gradients, gradients, 1e-3);
  EXPECT_LE(off, 1e-10) << name;
}

}  // namespace pentatron::test_support
