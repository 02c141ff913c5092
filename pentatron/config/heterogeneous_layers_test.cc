// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/heterogeneous_layers.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"

namespace pentatron::config {
namespace {

ModelConfig three_layers() {
  ModelConfig model;
  model.num_layers = 3;
  model.hidden_size = 1000;
  model.num_attention_heads = 8;
  model.num_query_groups = 4;
  model.ffn_hidden_size = 96;
  model.swiglu = true;
  return model;
}

// As the models of Nemotron-NAS have it, and in Megatron's own keys.
constexpr const char* kLayers = R"({"hidden_act": "silu", "hidden_size": 1000, "block_configs": [
  {"attention": {"n_heads_in_group": 4, "no_op": false, "replace_with_linear": false,
                 "sparsify": null, "unshifted_sink": false},
   "ffn": {"ffn_mult": 2.625, "no_op": false, "replace_with_linear": false}},
  {"attention": {"n_heads_in_group": null, "no_op": true},
   "ffn": {"ffn_mult": null, "replace_with_linear": true}},
  {"attention": {"replace_with_linear": true}, "ffn": null,
   "mlp": {"ffn_hidden_size": 40, "ffn_mult": 9.0}}]})";

// The problems; empty when there are none.
std::string resolved(ModelConfig& model, std::int64_t tp = 1) {
  Problems problems;
  resolve_heterogeneous_layers(model, tp, problems);
  return problems.empty() ? std::string() : problems.lines().at(0);
}

TEST(HeterogeneousLayers, AreReadAsMegatronReadsThem) {
  ModelConfig model = three_layers();
  model.heterogeneous_layers_config_encoded_json = kLayers;
  EXPECT_EQ(resolved(model), "");
  const std::vector<LayerShape> shapes = layer_shapes(model);
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_EQ(shapes[0].attention, SublayerForm::kUsual);
  EXPECT_EQ(shapes[0].num_query_groups, 2);  // 8 heads, 4 in a group
  // floor(2 x 2.625 x 1000 / 3) = 1750, and the next multiple of 256.
  EXPECT_EQ(shapes[0].ffn_hidden_size, 1792);
  EXPECT_EQ(shapes[1].attention, SublayerForm::kNone);
  EXPECT_EQ(shapes[1].num_query_groups, 0);
  EXPECT_EQ(shapes[1].mlp, SublayerForm::kLinear);
  EXPECT_EQ(shapes[1].ffn_hidden_size, 0);
  EXPECT_EQ(shapes[2].attention, SublayerForm::kLinear);
  EXPECT_EQ(shapes[2].ffn_hidden_size, 40);  // its own size goes before a factor
  // Without a size, and of a model without these options: the model's.
  model.heterogeneous_layers_config_encoded_json =
      R"({"block_configs": [{"attention": {}, "ffn": {"no_op": true}},
          {"attention": {}, "ffn": {"no_op": false}}, {"attention": {}, "ffn": {"no_op": false}}]})";
  EXPECT_EQ(layer_shapes(model).at(1).num_query_groups, 4);
  EXPECT_EQ(layer_shapes(model).at(1).ffn_hidden_size, 96);
  EXPECT_EQ(layer_shapes(model).at(0).mlp, SublayerForm::kNone);
  model = three_layers();
  EXPECT_EQ(layer_shapes(model).at(2).num_query_groups, 4);
  EXPECT_EQ(layer_shapes(model).at(2).ffn_hidden_size, 96);
}

TEST(HeterogeneousLayers, HaveOneSpellingThatACheckpointHolds) {
  ModelConfig model = three_layers();
  model.heterogeneous_layers_config_encoded_json = kLayers;
  EXPECT_EQ(resolved(model), "");
  const std::string spelling = model.heterogeneous_layers_config_encoded_json;
  EXPECT_EQ(resolved(model), "");
  EXPECT_EQ(model.heterogeneous_layers_config_encoded_json, spelling);

  const TempFolder folder;
  const std::string path = (folder.path() / "layers.json").string();
  write_file_atomically(path, kLayers);
  ModelConfig of_file = three_layers();
  of_file.heterogeneous_layers_config_path = path;
  EXPECT_EQ(resolved(of_file), "");
  EXPECT_EQ(of_file.heterogeneous_layers_config_path, "");
  EXPECT_EQ(of_file.heterogeneous_layers_config_encoded_json, spelling);
  // Both may be given while they say the same.
  of_file.heterogeneous_layers_config_path = path;
  EXPECT_EQ(resolved(of_file), "");
  of_file.heterogeneous_layers_config_path = path;
  of_file.heterogeneous_layers_config_encoded_json =
      R"({"block_configs": [{"attention": {}, "ffn": {"no_op": true}},
          {"attention": {}, "ffn": {"no_op": true}}, {"attention": {}, "ffn": {"no_op": true}}]})";
  EXPECT_NE(resolved(of_file).find("describe other layers"), std::string::npos);
  of_file.heterogeneous_layers_config_path = (folder.path() / "none.json").string();
  EXPECT_NE(resolved(of_file).find("none.json"), std::string::npos);
}

TEST(HeterogeneousLayers, RefuseByNameWhatTheyCannotBe) {
  const auto problem = [](const std::string& text, std::int64_t tp = 1,
                          const std::function<void(ModelConfig&)>& change = {}) {
    ModelConfig model = three_layers();
    model.num_layers = 1;
    if (change) change(model);
    model.heterogeneous_layers_config_encoded_json = text;
    return resolved(model, tp);
  };
  const auto layer = [](const std::string& attention, const std::string& ffn) {
    return R"({"block_configs": [{"attention": )" + attention + R"(, "ffn": )" + ffn + "}]}";
  };
  const std::string plain = R"({"no_op": false})";
  EXPECT_EQ(problem(layer(plain, plain)), "");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "block_configs"},
      {R"({"block_configs": 3})", "block_configs"},
      {R"({"block_configs": []})", "--num-layers says 1"},
      {R"({"block_configs": [7]})", "layer 0"},
      {R"({"block_configs": [{"attention": {}}]})", "neither ffn nor mlp"},
      {R"({"num_hidden_layers": 9, "block_configs": [{"attention": {}, "ffn": {"no_op": true}}]})",
       "num_hidden_layers is '9', but --num-layers says 1"},
      {R"({"hidden_act": "relu", "block_configs": [{"attention": {}, "ffn": {"no_op": true}}]})",
       "hidden_act"},
      {layer("3", plain), "layer 0, attention"},
      {layer(R"({"no_op": 1})", plain), "no_op is '1'"},
      {layer(R"({"no_op": true, "replace_with_linear": true})", plain), "exclude each other"},
      {layer(R"({"no_op": true, "num_query_groups": 2})", plain), "have no size, 2"},
      {layer(R"({"num_query_groups": 3})", plain), "do not divide by 3 query groups"},
      {layer(R"({"num_query_groups": -1})", plain), "num_query_groups is '-1'"},
      {layer(R"({"num_query_groups": 1e30})", plain), "expected a number from 1"},
      {layer(R"({"num_query_groups": 2.0})", plain), "num_query_groups is '2.0'"},
      {layer(R"({"n_heads_in_group": 3})", plain), "n_heads_in_group 3"},
      {layer(R"({"window_length": 4096})", plain), "'window_length' '4096' is not supported"},
      {layer(plain, R"({"ffn_mult": -2})"), "ffn_mult is '-2'"},
      {layer(plain, R"({"ffn_mult": 1e300})"), "ffn_mult"},
      {layer(plain, R"({"ffn_mult": "2"})"), "ffn_mult"},
      {layer(plain, R"({"ffn_hidden_size": 0})"), "ffn_hidden_size is '0'"},
      {layer(plain, R"({"sparsify": ["a"]})"), "'sparsify'"},
  };
  for (const auto& [text, said] : cases) {
    EXPECT_NE(problem(text).find(said), std::string::npos) << text << "\n" << problem(text);
  }
  EXPECT_NE(problem("{").find("encoded-json"), std::string::npos);
  EXPECT_NE(problem(layer(plain, R"({"ffn_hidden_size": 41})"), 2).find("41 does not divide"),
            std::string::npos);
  EXPECT_NE(problem(layer(R"({"num_query_groups": 2})", plain), 3).find("2 query groups"),
            std::string::npos);
  EXPECT_NE(problem(layer(R"({"replace_with_linear": true})", plain), 3).find("--hidden-size 1000"),
            std::string::npos);
  const auto post = [](ModelConfig& m) { m.norm_placement = "post"; };
  EXPECT_NE(problem(layer(plain, plain), 1, post).find("--norm-placement post"), std::string::npos);
  const auto parallel = [](ModelConfig& m) { m.parallel_attention = "own-norms"; };
  EXPECT_NE(problem(layer(plain, plain), 1, parallel).find("--parallel-attention"),
            std::string::npos);
}

}  // namespace
}  // namespace pentatron::config
