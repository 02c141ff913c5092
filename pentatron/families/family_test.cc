// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/family.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pentatron/base/test_support.h"
#include "pentatron/families/presets.h"
#include "pentatron/families/test_support.h"

namespace pentatron::families {
namespace {

using test_support::reference_models;

Json config_of(const char* name) { return reference_models().at(name).at("config"); }
ModelConfig read(const Json& json) { return read_config(json.dump(), "config.json").model; }
ModelConfig read(const char* name) { return read(config_of(name)); }

// The family's own config.json of a model, as an object.
Json written(const Json& json) {
  const Description d = read_config(json.dump(), "config.json");
  return Json::parse(write_config(*d.family, d.model, "float32"));
}

TEST(Family, EveryReferenceConfigGoesThereAndBack) {
  for (const auto& [name, reference] : reference_models().items()) {
    SCOPED_TRACE(name);
    const Description d = read_config(reference.at("config").dump(), name);
    const std::string text = write_config(*d.family, d.model, "bfloat16");
    const Description back = read_config(text, name);
    EXPECT_EQ(back.family, d.family);
    EXPECT_EQ(model_differences(back.model, d.model), "");
    EXPECT_EQ(write_config(*back.family, back.model, "bfloat16"), text);
    EXPECT_EQ(Json::parse(text).at("torch_dtype"), "bfloat16");
    EXPECT_EQ(Json::parse(text).at("architectures").at(0), d.family->architecture);
  }
}

// Phi-3's 128k models: keys of both versions of the library.
TEST(Family, LongRope) {
  Json phi = config_of("phi3");
  phi["original_max_position_embeddings"] = 64;
  const Json numbers = {{"short_factor", {1.0, 1.05, 1.1}}, {"long_factor", {1.2, 3.5, 64.25}}};
  Json older = phi;
  older["rope_theta"] = 20000.0;
  older["rope_scaling"] = numbers;
  older["rope_scaling"]["type"] = "su";
  older.erase("rope_parameters");
  Json newer = phi;
  newer["rope_parameters"] = numbers;
  newer["rope_parameters"].update({{"rope_type", "longrope"},
                                   {"rope_theta", 20000.0},
                                   {"partial_rotary_factor", 1.0},
                                   {"original_max_position_embeddings", 64}});
  const ModelConfig model = read(older);
  EXPECT_EQ(model.position_embedding_type, "longrope");
  EXPECT_EQ(model.rotary_base, 20000);
  EXPECT_EQ(model.longrope_original_max_position_embeddings, 64);
  EXPECT_EQ(model.longrope_short_factor, (std::vector<std::string>{"1", "1.05", "1.1"}));
  EXPECT_EQ(model.longrope_long_factor, (std::vector<std::string>{"1.2", "3.5", "64.25"}));
  EXPECT_EQ(model_differences(read(newer), model), "");
  const Json own = written(older);
  EXPECT_EQ(own.at("rope_scaling").at("long_factor"), numbers.at("long_factor"));
  EXPECT_EQ(own.at("original_max_position_embeddings"), 64);
  EXPECT_EQ(model_differences(read(own), model), "");
}

// Gemma 3 with pictures: the language model inside, whose file says little.
// Published files hold keys that the library neither writes nor reads.
TEST(Family, KeysOfPublishedFiles) {
  Json phi = config_of("phi3");
  const Json added = {{"mlp_bias", false},
                      {"lm_head_bias", false},
                      {"full_attn_mod", 1},
                      {"interpolate_factor", 1}};
  phi.update(added);
  EXPECT_EQ(model_differences(read(phi), read("phi3")), "");
  for (const auto& [key, value] : added.items()) {
    EXPECT_FALSE(written(phi).contains(key)) << key;
    Json other = phi;
    other[key] = value.is_boolean() ? Json(true) : Json(2);
    expect_error(ErrorKind::kUnsupported, key, [&] { (void)read(other); });
  }
}

TEST(Family, LanguageModelOfTextAndPictures) {
  const Json outer = {{"model_type", "gemma3"},
                      {"architectures", {"Gemma3ForConditionalGeneration"}},
                      {"text_config", config_of("gemma3")},
                      {"vision_config", {{"model_type", "siglip_vision_model"}}},
                      {"mm_tokens_per_image", 256},
                      {"torch_dtype", "bfloat16"}};
  const Description d = read_config(outer.dump(), "config.json");
  EXPECT_TRUE(d.of_outer);
  EXPECT_EQ(d.family->name, "gemma3");
  EXPECT_EQ(model_differences(d.model, read("gemma3")), "");
  EXPECT_FALSE(read_config(config_of("gemma3").dump(), "config.json").of_outer);
  // As the 4B model's file has it
  Json sparse = outer;
  sparse["text_config"] = {{"hidden_size", 2560},
                           {"intermediate_size", 10240},
                           {"model_type", "gemma3_text"},
                           {"num_hidden_layers", 34},
                           {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                           {"sliding_window", 1024}};
  const ModelConfig model = read(sparse);
  EXPECT_EQ(model.vocab_size, 262208);
  EXPECT_EQ(model.num_attention_heads, 8);
  EXPECT_EQ(model.num_query_groups, 4);
  EXPECT_EQ(model.kv_channels, 256);
  EXPECT_EQ(model.max_position_embeddings, 131072);
  EXPECT_EQ(model.rotary_seq_len_interpolation_factor, 8);
  EXPECT_FALSE(model.untie_embeddings_and_output_weights);
  const auto refused = [&](const char* key, const Json& value, std::string_view part) {
    Json other = outer;
    other[key] = value;
    expect_error(ErrorKind::kUnsupported, part, [&] { (void)read(other); });
  };
  refused("architectures", {"Gemma3ForCausalLM"}, "expected [\"Gemma3ForConditionalGeneration\"]");
  refused("text_config", nullptr, "'text_config'");
  refused("text_config", {{"model_type", "gemma2"}}, "gemma3_text");
  refused("audio_config", Json::object(), "audio_config");
  refused("quantization_config", Json::object(), "quantised");
}

TEST(Family, SaysWhatTheModelIs) {
  const ModelConfig llama = read("llama-3.1");
  EXPECT_EQ(llama.num_layers, 2);
  EXPECT_EQ(llama.kv_channels, 24);
  EXPECT_EQ(llama.num_query_groups, 2);
  EXPECT_EQ(llama.rotary_base, 500000);
  EXPECT_TRUE(llama.use_rope_scaling && llama.swiglu && !llama.add_bias_linear);
  EXPECT_FALSE(llama.untie_embeddings_and_output_weights);
  EXPECT_EQ(llama.normalization, "RMSNorm");
  EXPECT_EQ(llama.layernorm_epsilon, 1e-6);
  EXPECT_TRUE(read("llama-biases").add_bias_linear);
  EXPECT_EQ(read("llama-biases").rotary_seq_len_interpolation_factor, 4);
  const ModelConfig yarn = read("llama-yarn");
  EXPECT_EQ(yarn.position_embedding_type, "yarn");
  EXPECT_EQ(yarn.rotary_scaling_factor, 4.0);
  EXPECT_EQ(yarn.yarn_original_max_position_embeddings, 32);
  EXPECT_TRUE(read("gpt2").bias_gelu_fusion && !read("gpt2-erf").bias_gelu_fusion);
  EXPECT_EQ(read("gpt2").ffn_hidden_size, 256);
  EXPECT_EQ(read("gpt2").hidden_dropout, 0.1);
  EXPECT_TRUE(read("qwen2").add_qkv_bias && read("qwen3").qk_layernorm);
  EXPECT_EQ(read("smollm3").no_rope_freq, "");  // every fourth of two
  Json four = config_of("smollm3");
  four["num_hidden_layers"] = 4;
  four["layer_types"] = nullptr;
  four["no_rope_layers"] = {1, 1, 1, 0};
  EXPECT_EQ(read(four).no_rope_freq, "4");
  EXPECT_EQ(written(four).at("no_rope_layers"), four.at("no_rope_layers"));
  four["no_rope_layers"] = {0, 1, 1, 0};
  EXPECT_EQ(read(four).no_rope_freq, "[1,0,0,1]");
  EXPECT_TRUE(read("nemotron").squared_relu && read("nemotron").apply_layernorm_1p);
  EXPECT_EQ(read("nemotron").rotary_percent, 0.5);
  EXPECT_EQ(read("phi3-partial").rotary_percent, 0.75);
  EXPECT_EQ(read("gpt_neox").rotary_percent, 0.25);
  EXPECT_EQ(read("gpt_neox").parallel_attention, "own-norms");
  EXPECT_EQ(read("gpt_neox-serial").parallel_attention, "none");
  EXPECT_EQ(read("falcon-7b").parallel_attention, "shared-norm");
  EXPECT_EQ(read("falcon-7b").num_query_groups, 1);
  EXPECT_EQ(read("falcon-40b").parallel_attention, "own-norms");
  EXPECT_EQ(read("falcon-11b").parallel_attention, "shared-norm");
  EXPECT_EQ(read("falcon-serial").parallel_attention, "none");
  EXPECT_EQ(read("olmo2").norm_placement, "post");
  EXPECT_EQ(read("olmo2").qk_norm_scope, "all-heads");
}

TEST(Family, GemmaHasScalesCapsAndTwoBases) {
  const ModelConfig two = read("gemma2");
  EXPECT_EQ(two.norm_placement, "both");
  EXPECT_TRUE(two.geglu && two.apply_layernorm_1p);
  EXPECT_DOUBLE_EQ(two.softmax_scale.value_or(0), 1.0 / 6.0);
  EXPECT_DOUBLE_EQ(two.embedding_multiplier.value_or(0), 8.0);
  EXPECT_EQ(two.attn_logit_softcapping, 5.0);
  EXPECT_EQ(two.final_logit_softcapping, 4.0);
  const ModelConfig three = read("gemma3");
  EXPECT_EQ(three.rotary_base, 1000000);
  EXPECT_EQ(three.rotary_base_local, 10000);
  EXPECT_FALSE(three.attn_logit_softcapping.has_value());
  EXPECT_TRUE(three.qk_layernorm);
}

TEST(Family, Windows) {
  EXPECT_EQ(read("mistral").window_size, "");
  EXPECT_EQ(read("mistral-window").window_size, "7,0");  // a token itself and 7 before it
  EXPECT_EQ(read("mistral-window").window_attn_skip_freq, "");
  EXPECT_EQ(read("qwen2").window_size, "");
  Json mixed = config_of("qwen2-window");
  mixed["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(read(mixed).window_attn_skip_freq, "[0,1]");
  EXPECT_EQ(written(mixed).at("layer_types"), mixed.at("layer_types"));
  EXPECT_EQ(read("gemma2").window_attn_skip_freq, "2");  // the second layer sees all keys
  EXPECT_EQ(preset_model("gemma3-1b").model.window_attn_skip_freq, "6");  // of 26 layers
  mixed["layer_types"] = {"full_attention"};
  expect_error(ErrorKind::kUnsupported, "layer_types", [&] { (void)read(mixed); });
}

TEST(Family, BothFormsOfRotaryParametersAreOne) {
  const Json newer = config_of("llama-3.1");
  Json older = newer;
  older["rope_scaling"] = older.at("rope_parameters");
  older["rope_scaling"].erase("rope_theta");
  older["rope_theta"] = 500000.0;
  older.erase("rope_parameters");
  EXPECT_EQ(model_differences(read(newer), read(older)), "");
  const Json own = written(newer);
  EXPECT_EQ(own.at("rope_theta"), 500000.0);
  EXPECT_EQ(own.at("rope_scaling").at("rope_type"), "llama3");
}

// Which linear layers have a bias, as the file says it and as the options do.
TEST(Family, BiasesOfSomeLayers) {
  struct Case {
    const char* model;
    Json keys;
    bool all, qkv, output, mlp;
  };
  const Json neither = {{"attention_bias", false}, {"mlp_bias", false}};
  const Json attention = {{"attention_bias", true}, {"mlp_bias", false}};
  const Json mlp = {{"attention_bias", false}, {"mlp_bias", true}};
  const Json both = {{"attention_bias", true}, {"mlp_bias", true}};
  std::vector<Case> cases;
  for (const char* model : {"llama", "nemotron", "smollm3"}) {
    cases.push_back({model, neither, false, false, false, false});
    cases.push_back({model, attention, false, true, true, false});
    cases.push_back({model, mlp, false, false, false, true});
    cases.push_back({model, both, true, false, false, false});
  }
  for (const char* model : {"qwen3", "gemma2", "gemma3", "olmo2"}) {
    cases.push_back({model, {{"attention_bias", true}}, false, true, true, false});
  }
  cases.push_back({"gpt_neox", {{"attention_bias", true}}, true, false, false, false});
  cases.push_back({"gpt_neox", {{"attention_bias", false}}, false, false, false, true});
  cases.push_back({"starcoder2", {{"use_bias", false}}, false, false, false, false});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.model + c.keys.dump());
    Json json = config_of(c.model);
    json.update(c.keys);
    const ModelConfig model = read(json);
    EXPECT_EQ(model.add_bias_linear, c.all);
    EXPECT_EQ(model.add_qkv_bias, c.qkv);
    EXPECT_EQ(model.add_attention_output_bias, c.output);
    EXPECT_EQ(model.add_mlp_bias, c.mlp);
    const Json own = written(json);
    for (const auto& [key, value] : c.keys.items()) EXPECT_EQ(own.at(key), value) << key;
    EXPECT_EQ(model_differences(read(own), model), "");
  }
  Json starcoder = config_of("starcoder2");
  EXPECT_FALSE(read(starcoder).openai_gelu);
  starcoder["use_bias"] = false;
  EXPECT_TRUE(read(starcoder).openai_gelu);
  // What no key of the family says is no model of it.
  ModelConfig other = read("llama");
  other.add_qkv_bias = true;
  expect_error(ErrorKind::kUnsupported, "add_qkv_bias",
               [&] { (void)write_config(*find_family("llama"), other, "float32"); });
}

// Changes a key; the message must have the part.
void refuse(const char* model, const char* key, const Json& value, ErrorKind kind,
            std::string_view part) {
  SCOPED_TRACE(std::string(model) + " " + key + " " + value.dump());
  Json json = config_of(model);
  json[key] = value;
  expect_error(kind, part, [&] { (void)read(json); });
}

TEST(Family, WhatWouldChangeTheModelIsRefusedByName) {
  const auto unsupported = ErrorKind::kUnsupported;
  refuse("llama", "hidden_act", "gelu", unsupported, "'hidden_act' is '\"gelu\"', expected silu");
  refuse("llama", "rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}}, unsupported,
         "rope_type 'dynamic' is not supported");
  refuse("llama", "rope_parameters", {{"rope_type", "linear"}, {"factor", 2.5}}, ErrorKind::kData,
         "'factor' is '2.5', expected an integer");
  refuse("llama", "rope_parameters", {{"rope_theta", 0.5}}, unsupported, "rope_theta");
  refuse("llama", "partial_rotary_factor", 0.5, unsupported, "partial_rotary_factor");
  refuse("llama", "quantization_config", Json::object(), unsupported, "quantised");
  refuse("llama", "architectures", {"LlamaForSequenceClassification"}, unsupported,
         "'architectures'");
  refuse("llama", "rope_interleaved", true, unsupported, "rope_interleaved");
  refuse("qwen2", "use_mrope", true, unsupported, "use_mrope");
  refuse("llama", "is_encoder_decoder", true, unsupported, "is_encoder_decoder");
  refuse("gpt2", "scale_attn_by_inverse_layer_idx", true, unsupported,
         "scale_attn_by_inverse_layer_idx");
  refuse("gpt2", "activation_function", "relu", unsupported, "gelu_new");
  refuse("gpt2", "embd_pdrop", 0.3, unsupported, "'embd_pdrop'");
  refuse("falcon-7b", "alibi", 1, ErrorKind::kData, "'alibi'");
  refuse("phi3", "rope_parameters", {{"rope_type", "longrope"}}, unsupported, "short_factor");
  refuse("llama", "rope_parameters", {{"rope_type", "longrope"}}, unsupported, "longrope");
  const Json factors = {1.0, 1.5, 2.0, 2.5};
  refuse("phi3", "rope_scaling",
         {{"type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}, {"mscale", 2}},
         unsupported, "mscale");
  refuse("phi3", "rope_scaling",
         {{"type", "su"}, {"short_factor", factors}, {"long_factor", {1.0, -2.0}}}, unsupported,
         "long_factor");
  refuse("phi3", "rope_scaling",
         {{"type", "su"},
          {"short_factor", factors},
          {"long_factor", factors},
          {"attention_factor", 7.5}},
         unsupported, "attention_factor");
  refuse("llama", "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}, unsupported,
         "'rope_parameters'");
  refuse("gemma2", "use_bidirectional_attention", true, unsupported, "use_bidirectional_attention");
  refuse("phi3", "attention_bias", true, unsupported, "attention_bias");
  refuse("starcoder2", "use_bias", "none", ErrorKind::kData, "use_bias");
  refuse("llama", "num_key_values_heads", 2, unsupported,
         "'num_key_values_heads' (did you mean num_key_value_heads?)");
  refuse("llama", "model_type", "llamb", unsupported, "did you mean llama?");
  refuse("llama", "model_type", "mixtral", unsupported, "there are: llama, gpt2");
  for (const char* other : {"qwen2_moe", "phi3small", "phimoe", "phi4_multimodal", "gemma3n"}) {
    refuse("qwen2", "model_type", other, unsupported, other);
  }
}

TEST(Family, HostileValuesAreDataErrors) {
  for (const Json& value : {Json(-1), Json(0), Json(1e18), Json("64"), Json(2.5), Json(nullptr),
                            Json::array(), Json(true)}) {
    refuse("llama", "hidden_size", value, ErrorKind::kData, "'hidden_size'");
    refuse("gemma2", "num_hidden_layers", value, ErrorKind::kData, "'num_hidden_layers'");
  }
  refuse("llama", "num_key_value_heads", 3, ErrorKind::kUnsupported, "num_key_value_heads");
  refuse("llama", "rms_norm_eps", "small", ErrorKind::kData, "rms_norm_eps");
  refuse("llama", "model_type", 5, ErrorKind::kData, "model_type");
  refuse("llama", "rope_parameters", "none", ErrorKind::kUnsupported, "rope_parameters");
  for (const char* text : {"", "[]", "{", "3", "{\"model_type\": \"llama\", \"model_type\": 1}"}) {
    expect_error(ErrorKind::kData, "config.json", [&] { (void)read_config(text, "config.json"); });
  }
  // Any key of any model may hold anything: an error or a model, never more.
  const Json odd[] = {Json(nullptr),         Json(-7),
                      Json(1e300),           Json("x"),
                      Json::array({1, "a"}), Json{{"a", Json::array()}}};
  for (const auto& [name, reference] : reference_models().items()) {
    for (const auto& [key, before] : reference.at("config").items()) {
      for (const Json& value : odd) {
        Json json = reference.at("config");
        json[key] = value;
        try {
          (void)read(json);
        } catch (const Error& error) {
          EXPECT_TRUE(error.kind() == ErrorKind::kData || error.kind() == ErrorKind::kUnsupported)
              << name << " " << key << ": " << error.what();
        }
      }
    }
  }
}

TEST(Family, AnotherFamilyThatCannotSayItSaysWhatDiffers) {
  const ModelConfig qwen3 = read("qwen3");
  expect_error(ErrorKind::kUnsupported, "qk_layernorm true and false",
               [&] { (void)write_config(*find_family("llama"), qwen3, "float32"); });
  const Family* found = family_of(qwen3);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name, "qwen3");
  EXPECT_EQ(family_of(read("llama"))->name, "llama");
  ModelConfig none = qwen3;
  none.quick_geglu = true;
  EXPECT_EQ(family_of(none), nullptr);
}

TEST(Presets, FillInTheModel) {
  std::size_t count = 0;
  for (const Family* family : families()) {
    EXPECT_FALSE(presets_of(family->name).empty()) << family->name;
    for (const Preset& preset : presets_of(family->name)) {
      SCOPED_TRACE(preset.name);
      ++count;
      const Description d = preset_model(preset.name);
      EXPECT_EQ(model_differences(
                    read_config(write_config(*d.family, d.model, "float32"), "own").model, d.model),
                "");
      EXPECT_EQ(preset_table().find(preset.name + " ") == std::string::npos, false);
    }
  }
  EXPECT_GE(count, 60U);
  config::ParseRequest request;
  request.words = {"--model-preset", "llama3.2-1b", "--num-layers", "3"};
  request.layers_for = [](const config::EarlyValue& value) {
    return std::vector<config::ValueLayer>{preset_layer(*value("model_preset"))};
  };
  const config::ParsedOptions parsed = config::parse(request);
  EXPECT_EQ(parsed.config.model.num_layers, 3);
  EXPECT_EQ(parsed.config.model.hidden_size, 2048);
  EXPECT_EQ(parsed.config.model.rope_scaling_factor, 32.0);
  EXPECT_EQ(parsed.origins.at("hidden_size").origin, config::Origin::kPreset);
  EXPECT_EQ(parsed.origins.at("hidden_size").where, "llama3.2-1b");
  EXPECT_EQ(parsed.origins.at("num_layers").origin, config::Origin::kCommandLine);
  expect_error(ErrorKind::kConfig, "'llama3.2-1B': no such preset (did you mean llama3.2-1b?)",
               [&] {
                 request.words[1] = "llama3.2-1B";
                 (void)config::parse(request);
               });
}

// Numbers of parameters as the papers and model cards have them.
TEST(Presets, HaveTheSizesThatTheirNamesSay) {
  const auto billions = [](const char* name) {
    double count = 0;
    for (const Part& part : test_support::parts_of(preset_model(name).model)) {
      double values = 1;
      for (const std::int64_t size : part.shape) values *= static_cast<double>(size);
      count += values;
    }
    return count / 1e9;
  };
  const std::pair<const char*, double> known[] = {
      {"gpt2-124m", 0.124439808},       {"gpt2-1.5b", 1.5576112},
      {"llama2-7b", 6.738415616},       {"llama2-70b", 68.976648192},
      {"llama3.1-8b", 8.030261248},     {"llama3.2-1b", 1.2358144},
      {"mistral-7b-v0.1", 7.241732096}, {"qwen2.5-7b", 7.615616512},
      {"qwen3-8b", 8.190735360},        {"gemma2-2b", 2.614341888},
      {"gemma3-1b", 0.999885952},       {"phi3-mini-4k", 3.821079552},
      {"phi3.5-mini", 3.821079552},     {"phi4-mini", 3.836021760},
      {"pythia-70m", 0.070426624},      {"falcon-7b", 6.921720704},
      {"falcon-rw-1b", 1.311625216},    {"starcoder2-3b", 3.030371328},
      {"olmo2-7b", 7.298617344},        {"smollm2-135m", 0.134515008}};
  for (const auto& [name, expected] : known) EXPECT_NEAR(billions(name), expected, 1e-9) << name;
}

}  // namespace
}  // namespace pentatron::families
