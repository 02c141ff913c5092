// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/config.h"
#include "pentatron/models/registry.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/test_support.h"

// The tiny models of this module's tests. Only tests include it.
namespace pentatron::test_support {

// Sizes of the reference tensors (tools/reference/make_gpt_reference.py).
inline config::ModelConfig gpt2_kind() {
  config::ModelConfig c;
  c.num_layers = 2;
  c.hidden_size = 24;
  c.ffn_hidden_size = 40;
  c.num_attention_heads = 4;
  c.kv_channels = 6;
  c.num_query_groups = 4;
  c.max_position_embeddings = 16;
  c.seq_length = 12;
  c.vocab_size = 61;
  c.padded_vocab_size = 64;
  c.hidden_dropout = 0.0;
  c.attention_dropout = 0.0;
  return c;
}

inline config::ModelConfig llama_kind() {
  config::ModelConfig c = gpt2_kind();
  c.group_query_attention = true;
  c.num_query_groups = 2;
  c.untie_embeddings_and_output_weights = true;
  c.normalization = "RMSNorm";
  c.position_embedding_type = "rope";
  c.swiglu = true;
  c.add_bias_linear = false;
  return c;
}

// Random values for every part, norms and biases too, by part name: sharp attention, so that a
// small mistake shows.
inline Tensors random_weights(const config::ModelConfig& config) {
  Tensors weights;
  const auto plans = models::plan_parameters(config, 1, 1);
  for (const nn::PlannedParameter& parameter : plans[0][0].parameters()) {
    for (const nn::ShardPart& part : parameter.spec.parts) {
      const bool norm = part.name.find("layernorm.weight") != std::string::npos;
      const bool sharp = part.name.find(".q.weight") != std::string::npos ||
                         part.name.find(".k.weight") != std::string::npos;
      Tensor t = random_tensor(part.logical_shape, part.name, sharp ? 0.5 : 0.3);
      weights[part.name] = norm ? t.add(1.0) : t;
    }
  }
  return weights;
}

// Forward and backward of a whole model over `pipeline_size` stages that stand on this very thread,
// one after the other; loss and gradients go to `out`. The seed of the loss is 1/8.
inline void run_model(const config::ModelConfig& config,
                      const parallel_layers::LeafContext& context, std::int64_t pipeline_size,
                      const Tensors& weights, const Batch& batch, Gathered& out) {
  const PrecisionPolicy& policy = context.policy();
  nn::StepContext step{.batch = batch, .policy = policy, .seed = 17};
  std::vector<std::unique_ptr<nn::Stage>> stages;
  std::vector<Tensor> inputs;  // leaves, one a stage after the first
  std::vector<Tensor> outputs;
  nn::Bundle bundle;
  for (std::int64_t place = 0; place < pipeline_size; ++place) {
    stages.push_back(models::make_stage(
        "gpt", config, context,
        config::equal_stages(config, pipeline_size).at(static_cast<std::size_t>(place))));
    nn::Stage& stage = *stages.back();
    bind_gradients(stage, policy);
    load(stage, weights);
    bundle = stage.forward(bundle, step);
    outputs.push_back(bundle.at(0).tensor);
    if (place + 1 < pipeline_size) {
      const nn::BundleItemSpec expected = stage.output_spec(batch).at(0);
      PENTATRON_CHECK(tensor::shape_of(outputs.back()) == expected.shape &&
                          outputs.back().scalar_type() == expected.dtype,
                      kInternal, "a stage's output is not as its spec says");
      inputs.push_back(outputs.back().detach().clone().set_requires_grad(true));
      bundle = {{"hidden", inputs.back(), true}};
    }
  }
  out.put("loss", {1}, {{0}, {1}}, outputs.back().reshape({1}));
  Tensor gradient = tensor::scalar(0.125, policy.loss);
  for (std::int64_t place = pipeline_size - 1; place >= 0; --place) {
    const auto index = static_cast<std::size_t>(place);
    ops::run_backward(outputs[index], gradient);
    if (place > 0) gradient = inputs[index - 1].grad();
  }
  for (const auto& stage : stages) out.gradients(*stage);
}

}  // namespace pentatron::test_support
