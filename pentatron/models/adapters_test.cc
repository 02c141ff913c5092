// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters against a plain writing of the model, whose weights are W + scale B A, or those
// rows brought to the magnitudes' lengths, by the library's own derivatives.
#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/config/adapter_names.h"
#include "pentatron/config/adapters.h"
#include "pentatron/models/model_test_support.h"
#include "pentatron/models/plain_gpt_test_support.h"

namespace pentatron::models {
namespace {

using namespace test_support;  // NOLINT: test vocabulary
using config::AdapterPart;

config::ModelConfig adapted(config::ModelConfig c, std::int64_t rank, bool dora) {
  c.lora_rank = rank;
  c.lora_dora = dora;
  config::Problems problems;
  config::resolve_adapters(c, problems);
  problems.throw_if_any();
  return c;
}

// Leaves of a graph, by part name: magnitudes positive, as lengths are.
Tensors leaves_of(const config::ModelConfig& c) {
  Tensors leaves;
  for (const auto& [name, values] : random_weights(c)) {
    const bool length = name.ends_with(config::suffix_of(AdapterPart::kMagnitude));
    leaves[name] = (length ? values.abs().add(0.5) : values).clone().set_requires_grad(true);
  }
  return leaves;
}

// The weights of the model without adapters that does the same.
Tensors merged(const config::ModelConfig& c, const Tensors& leaves) {
  const double scale = c.lora_rslora ? c.lora_alpha / std::sqrt(static_cast<double>(c.lora_rank))
                                     : c.lora_alpha / static_cast<double>(c.lora_rank);
  Tensors weights;
  for (const auto& [name, values] : leaves) {
    if (config::is_adapter_name(name)) continue;
    weights[name] = values;
    const auto down = leaves.find(config::adapter_name(name, AdapterPart::kDown));
    if (down == leaves.end()) continue;
    const Tensor& up = leaves.at(config::adapter_name(name, AdapterPart::kUp));
    const Tensor sum = values.add(up.mm(down->second).mul(scale));
    weights[name] = sum;
    if (!c.lora_dora) continue;
    const Tensor length = sum.detach().pow(2).sum({1}, true).sqrt();
    const Tensor& magnitude = leaves.at(config::adapter_name(name, AdapterPart::kMagnitude));
    weights[name] = sum.mul(magnitude.unsqueeze(1).div(length));
  }
  return weights;
}

// Loss and gradients of the plain model; the seed of the loss is 1/8.
Tensors plain_outcome(const config::ModelConfig& c, const Batch& batch) {
  const Tensors leaves = leaves_of(c);
  const Tensor loss = PlainGpt(config::without_adapters(c), merged(c, leaves)).loss(batch);
  ops::run_backward(loss, tensor::scalar(0.125, DType::Double));
  Tensors outcome = {{"loss", loss.detach().reshape({1})}};
  for (const auto& [name, leaf] : leaves) {
    outcome[name] =
        leaf.grad().defined() ? leaf.grad() : tensor::zeros(leaf.sizes(), DType::Double);
  }
  return outcome;
}

Tensors own_outcome(const config::ModelConfig& c, const Batch& batch, const Layout& layout,
                    std::int64_t pipeline_size) {
  Gathered out;
  Tensors weights;
  for (const auto& [name, leaf] : leaves_of(c)) weights[name] = leaf.detach();
  run_layout(layout, precision_policy("fp64"), [&](const parallel_layers::LeafContext& context) {
    run_model(c, context, pipeline_size, weights, batch, out);
  });
  return out.tensors();
}

std::vector<config::ModelConfig> models_with_adapters() {
  std::vector<config::ModelConfig> models;
  for (const bool dora : {false, true}) {
    models.push_back(adapted(gpt2_kind(), 3, dora));
    models.push_back(adapted(llama_kind(), 2, dora));
    config::ModelConfig some = llama_kind();
    some.lora_target_modules = {"down", "q", "v"};
    some.lora_alpha = 1.5;
    some.lora_rslora = true;
    models.push_back(adapted(some, 5, dora));
    config::ModelConfig gated = llama_kind();
    gated.attention_output_gate = true;
    gated.num_query_groups = 1;
    gated.lora_target_modules = {"attention_gate", "up", "k"};
    models.push_back(adapted(gated, 2, dora));
    // The weights beneath keep the multipliers of maximal update parametrisation.
    config::ModelConfig wide = gpt2_kind();
    wide.use_mup = true;
    wide.mup_width_mult = 2.0;
    wide.mup_embedding_mult = 3.5;
    wide.mup_output_mult = 0.3;
    wide.softmax_scale = 1.0 / 6;
    models.push_back(adapted(wide, 3, dora));
  }
  return models;
}

TEST(Adapters, EqualThePlainModel) {
  for (const config::ModelConfig& c : models_with_adapters()) {
    const Batch batch = make_batch({{7, 5}, {12}}, c.vocab_size);
    const Tensors expected = plain_outcome(c, batch);
    for (const auto& [tp, sp, pp] : {std::tuple{1, false, 1}, std::tuple{2, false, 1},
                                     std::tuple{2, true, 2}, std::tuple{4, true, 1}}) {
      const auto [off, name] = worst_difference(own_outcome(c, batch, {tp, sp}, pp), expected);
      EXPECT_LE(off, 1e-10) << name << ": tp " << tp << " sp " << sp << " pp " << pp;
    }
    // Each of the things that the options say counts.
    for (const auto& change : std::vector<std::function<void(config::ModelConfig&)>>{
             [](config::ModelConfig& m) { m.lora_alpha *= 1.01; },
             [](config::ModelConfig& m) { m.lora_rslora = !m.lora_rslora; }}) {
      config::ModelConfig other = c;
      change(other);
      EXPECT_GT(worst_difference(own_outcome(other, batch, {}, 1), expected).first, 1e-4);
    }
  }
}

TEST(Adapters, NamesFollowThePartsAndAreCutAsTheyAre) {
  const config::ModelConfig c = adapted(llama_kind(), 2, true);
  const nn::ParameterPlan plan = plan_parameters(c, 4, 1).at(0).at(3);
  const auto part = [&](const std::string& name) -> const nn::ShardPart& {
    for (const nn::PlannedParameter& parameter : plan.parameters()) {
      for (const nn::ShardPart& one : parameter.spec.parts) {
        if (one.name == "decoder.layers.1." + name) return one;
      }
    }
    throw std::runtime_error("no part " + name);
  };
  const nn::ShardPart& k = part("self_attention.linear_qkv.k.lora_b");
  EXPECT_EQ(k.logical_shape, (Shape{12, 2}));
  EXPECT_EQ(k.box, (nn::Box{{6, 0}, {6, 2}}));
  EXPECT_EQ(k.partial_grad_axes, part("self_attention.linear_qkv.k.weight").partial_grad_axes);
  EXPECT_EQ(part("self_attention.linear_qkv.q.lora_a").box, (nn::Box{{0, 0}, {2, 24}}));
  EXPECT_EQ(part("mlp.linear_fc2.lora_a").split_axes, std::vector<std::string>{"tp"});
  EXPECT_EQ(part("mlp.linear_fc2.lora_b").partial_grad_axes, std::vector<std::string>{"tp"});
  EXPECT_EQ(part("mlp.linear_fc1.up.lora_magnitude").role, nn::ShardRole::kVector);
  EXPECT_EQ(part("self_attention.linear_qkv.v.lora_a").role, nn::ShardRole::kQkv);
  EXPECT_EQ(part("mlp.linear_fc1.up.lora_a").role, nn::ShardRole::kMatrix);
  for (const nn::PlannedParameter& parameter : plan.parameters()) {
    const bool adapter = parameter.local_name.find(".lora_") != std::string::npos;
    EXPECT_EQ(config::is_adapter_name(parameter.local_name), adapter) << parameter.local_name;
  }
}

}  // namespace
}  // namespace pentatron::models
