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
    EXPECT_EQ(spec.ffn.activation, Activation::kSwiglu);
    EXPECT_FALSE(spec.mixer.rotary);
  }
  config.swiglu = false;
  config.position_embedding_type = "rope";
  EXPECT_EQ(layer_specs(config)[0].ffn.activation, Activation::kGeluTanh);
  EXPECT_TRUE(layer_specs(config)[0].mixer.rotary);
}

}  // namespace
}  // namespace pentatron::transformer
