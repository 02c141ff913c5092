// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer_spec.h"

#include <gtest/gtest.h>

namespace pentatron::transformer {
namespace {

TEST(LayerSpec, OptionsMakeAllLayersAlike) {
  config::ModelConfig config{.num_layers = 3, .ffn_hidden_size = 48};
  config.swiglu = true;
  const std::vector<LayerSpec> specs = layer_specs(config);
  ASSERT_EQ(specs.size(), 3U);
  for (const LayerSpec& spec : specs) {
    EXPECT_EQ(spec.ffn.ffn_hidden_size, 48);
    ASSERT_TRUE(spec.ffn.gate.has_value());
    EXPECT_EQ(spec.ffn.gate->kind, ops::GateKind::kSilu);
    EXPECT_FALSE(spec.mixer.rotary);
  }
  config.swiglu = false;
  config.position_embedding_type = "rope";
  EXPECT_EQ(layer_specs(config)[0].ffn.activation, ops::Activation::kGeluTanh);
  EXPECT_FALSE(layer_specs(config)[0].ffn.gate.has_value());
  EXPECT_TRUE(layer_specs(config)[0].mixer.rotary);
}

// N3: Megatron's fused bias-GELU, which is the tanh form, needs a bias.
TEST(LayerSpec, N3_GeluIsTheErfFormWithoutBiases) {
  config::ModelConfig config{.num_layers = 1};
  config.add_bias_linear = false;
  EXPECT_EQ(layer_specs(config)[0].ffn.activation, ops::Activation::kGeluErf);
  config.add_bias_linear = true;
  config.bias_gelu_fusion = false;
  EXPECT_EQ(layer_specs(config)[0].ffn.activation, ops::Activation::kGeluErf);
  config.squared_relu = true;
  EXPECT_EQ(layer_specs(config)[0].ffn.activation, ops::Activation::kSquaredRelu);
}

TEST(LayerSpec, SomeLayersAreNotRotated) {
  config::ModelConfig config{.num_layers = 4};
  config.position_embedding_type = "rope";
  config.no_rope_freq = "2";
  const std::vector<LayerSpec> specs = layer_specs(config);
  EXPECT_TRUE(specs[0].mixer.rotary);
  EXPECT_FALSE(specs[1].mixer.rotary);
  EXPECT_TRUE(specs[2].mixer.rotary);
  EXPECT_FALSE(specs[3].mixer.rotary);
}

TEST(LayerSpec, SomeLayersHaveAWindow) {
  config::ModelConfig config{.num_layers = 3};
  config.window_size = "5,0";
  EXPECT_EQ(layer_specs(config)[2].mixer.window, 5);
  config.window_attn_skip_freq = "[1,0,1]";
  EXPECT_EQ(layer_specs(config)[0].mixer.window, 5);
  EXPECT_EQ(layer_specs(config)[1].mixer.window, -1);
}

TEST(LayerSpec, LayersWithAWindowRotateByTheLocalBase) {
  config::ModelConfig config{.num_layers = 4};
  config.position_embedding_type = "rope";
  const auto local = [&config] {
    std::string layers;
    for (const LayerSpec& spec : layer_specs(config)) layers += spec.mixer.local_rotary ? 'l' : '-';
    return layers;
  };
  config.rotary_base_local = 100;
  EXPECT_EQ(local(), "----");  // no windows
  config.window_size = "4,0";
  EXPECT_EQ(local(), "llll");
  config.window_attn_skip_freq = "2";
  EXPECT_EQ(local(), "l-l-");
  config.window_attn_skip_freq = "[1,0,0,1]";
  EXPECT_EQ(local(), "l--l");
  config.no_rope_freq = "[1,0,0,0]";
  EXPECT_EQ(local(), "---l");
  config.rotary_base_local = 0;
  EXPECT_EQ(local(), "----");
}

TEST(LayerSpec, PlacesOfNorms) {
  config::ModelConfig config{.num_layers = 1};
  const auto spec = [&config] { return layer_specs(config).at(0); };
  EXPECT_TRUE(spec().norms_inputs);
  EXPECT_FALSE(spec().norms_outputs || spec().parallel || spec().shared_norm);
  config.norm_placement = "post";
  EXPECT_TRUE(!spec().norms_inputs && spec().norms_outputs);
  config.norm_placement = "both";
  EXPECT_TRUE(spec().norms_inputs && spec().norms_outputs);
  config.norm_placement = "pre";
  config.parallel_attention = "own-norms";
  EXPECT_TRUE(spec().parallel && !spec().shared_norm);
  config.parallel_attention = "shared-norm";
  EXPECT_TRUE(spec().parallel && spec().shared_norm);
}

TEST(LayerSpec, ContextCommunicationOfEachLayer) {
  using config::ContextComm;
  config::ModelConfig config{.num_layers = 2};
  config.cp_comm_type = {"a2a", "allgather"};
  EXPECT_EQ(layer_specs(config)[0].mixer.context_comm, ContextComm::kA2a);
  EXPECT_EQ(layer_specs(config)[1].mixer.context_comm, ContextComm::kAllGather);
  config.cp_comm_type = {"a2a+p2p"};
  EXPECT_EQ(layer_specs(config)[1].mixer.context_comm, ContextComm::kA2aP2p);
}

}  // namespace
}  // namespace pentatron::transformer
