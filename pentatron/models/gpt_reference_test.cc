// SPDX-License-Identifier: Apache-2.0
// Both model kinds against tensors of an independent implementation (fp32) and against a plain
// second writing (fp64).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "pentatron/base/safetensors.h"
#include "pentatron/base/test_support.h"
#include "pentatron/models/model_test_support.h"
#include "pentatron/models/plain_gpt_test_support.h"
#include "pentatron/models/plain_writing_test_support.h"
#include "pentatron/parallel_layers/source_dir_test_support.h"

namespace pentatron::models {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

Tensors read(const std::string& name) {
  const SafetensorsFile file(source_dir() / "pentatron/models/testdata" / name);
  Tensors tensors;
  for (const auto& [key, entry] : file.header().entries) {
    Tensor t = tensor::empty(entry.shape, tensor::from_safetensors_dtype(entry.dtype));
    const auto bytes = file.bytes(key);
    std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
    tensors[key] = t;
  }
  return tensors;
}

// The other library's tensors of one kind ("weight/" or "grad/") under our part names.
Tensors gpt2_parts(const Tensors& all, const std::string& kind, const config::ModelConfig& c) {
  Tensors out;
  const auto get = [&](const std::string& name) { return all.at(kind + "transformer." + name); };
  out["embedding.word_embeddings.weight"] = get("wte.weight");
  out["embedding.position_embeddings.weight"] = get("wpe.weight");
  const std::vector<std::pair<std::string, std::string>> same = {{"input_layernorm", "ln_1"},
                                                                 {"pre_mlp_layernorm", "ln_2"}};
  const std::vector<std::pair<std::string, std::string>> turned = {
      {"self_attention.linear_proj", "attn.c_proj"},
      {"mlp.linear_fc1", "mlp.c_fc"},
      {"mlp.linear_fc2", "mlp.c_proj"}};
  for (std::int64_t n = 0; n < c.num_layers; ++n) {
    const std::string ours = "decoder.layers." + std::to_string(n) + ".";
    const std::string theirs = "h." + std::to_string(n) + ".";
    for (const auto& [to, from] : same) {
      out[ours + to + ".weight"] = get(theirs + from + ".weight");
      out[ours + to + ".bias"] = get(theirs + from + ".bias");
    }
    for (const auto& [to, from] : turned) {  // stored [in, out]
      out[ours + to + ".weight"] = get(theirs + from + ".weight").t().contiguous();
      out[ours + to + ".bias"] = get(theirs + from + ".bias");
    }
    std::int64_t at = 0;
    for (const char* part : {"q", "k", "v"}) {
      const std::string name = ours + "self_attention.linear_qkv." + part;
      out[name + ".weight"] =
          get(theirs + "attn.c_attn.weight").narrow(1, at, c.hidden_size).t().contiguous();
      out[name + ".bias"] = get(theirs + "attn.c_attn.bias").narrow(0, at, c.hidden_size);
      at += c.hidden_size;
    }
  }
  out["decoder.final_layernorm.weight"] = get("ln_f.weight");
  out["decoder.final_layernorm.bias"] = get("ln_f.bias");
  return out;
}

Tensors llama_parts(const Tensors& all, const std::string& kind, const config::ModelConfig& c) {
  Tensors out;
  out["embedding.word_embeddings.weight"] = all.at(kind + "model.embed_tokens.weight");
  out["output_layer.weight"] = all.at(kind + "lm_head.weight");
  out["decoder.final_layernorm.weight"] = all.at(kind + "model.norm.weight");
  const std::vector<std::pair<std::string, std::string>> names = {
      {"input_layernorm", "input_layernorm"},
      {"self_attention.linear_qkv.q", "self_attn.q_proj"},
      {"self_attention.linear_qkv.k", "self_attn.k_proj"},
      {"self_attention.linear_qkv.v", "self_attn.v_proj"},
      {"self_attention.linear_proj", "self_attn.o_proj"},
      {"pre_mlp_layernorm", "post_attention_layernorm"},
      {"mlp.linear_fc1.gate", "mlp.gate_proj"},
      {"mlp.linear_fc1.up", "mlp.up_proj"},
      {"mlp.linear_fc2", "mlp.down_proj"}};
  for (std::int64_t n = 0; n < c.num_layers; ++n) {
    for (const auto& [to, from] : names) {
      out["decoder.layers." + std::to_string(n) + "." + to + ".weight"] =
          all.at(fmt::format("{}model.layers.{}.{}.weight", kind, n, from));
    }
  }
  return out;
}

struct Reference {
  config::ModelConfig config;
  Tensors weights;
  Tensors gradients;
  Tensor logits;
  Tensor loss;
  Batch batch;
};

Reference load_reference(bool llama) {
  const Tensors all = read(llama ? "llama_tiny.safetensors" : "gpt2_tiny.safetensors");
  Reference r;
  r.config = llama ? llama_kind() : gpt2_kind();
  const auto parts = llama ? llama_parts : gpt2_parts;
  r.weights = parts(all, "weight/", r.config);
  r.gradients = parts(all, "grad/", r.config);
  r.batch = make_batch({{12}, {12}}, r.config.vocab_size);
  r.batch.fields["tokens"] = all.at("tokens").reshape({24});
  r.batch.fields["labels"] = all.at("labels").reshape({24});
  r.batch.fields["loss_mask"] = all.at("loss_mask").reshape({24});
  r.logits = all.at("logits").reshape({24, r.config.vocab_size});
  r.loss = all.at("loss");
  return r;
}

class GptReference : public testing::TestWithParam<bool> {};

TEST_P(GptReference, EqualsTheIndependentImplementationInFp32) {
  const Reference r = load_reference(GetParam());
  const Outcome ours = run_one(r.config, r.weights, r.batch, "fp32");
  EXPECT_LE(difference(ours.logits, r.logits), 1e-5);
  EXPECT_LE(difference(ours.loss, r.loss), 1e-6);
  const auto [off, name] = worst_difference(ours.gradients, r.gradients, 1e-3);
  EXPECT_LE(off, 1e-4) << name;
}

// The same comparison must fail for each mistake, or it would prove nothing.
TEST_P(GptReference, MistakesShowAgainstTheIndependentImplementation) {
  const Reference r = load_reference(GetParam());
  EXPECT_LE(difference(PlainGpt(r.config, r.weights).logits(r.batch), r.logits), 1e-5);
  for (const Mistake mistake :
       {Mistake::kSwappedHeads, Mistake::kShiftedPositions, Mistake::kNoCausalMask}) {
    const PlainGpt wrong(r.config, r.weights, mistake);
    EXPECT_GT(difference(wrong.logits(r.batch), r.logits), 1e-3) << static_cast<int>(mistake);
  }
}

TEST_P(GptReference, EqualsThePlainWritingInFp64WithGradients) {
  config::ModelConfig config = GetParam() ? llama_kind() : gpt2_kind();
  const Batch batch = make_batch({{5, 7}, {12}}, config.vocab_size);
  Tensors weights = random_weights(config);
  const Outcome ours = run_one(config, weights, batch, "fp64");
  for (auto& [name, t] : weights) t = t.clone().set_requires_grad(true);
  const PlainGpt plain(config, weights);
  EXPECT_LE(difference(ours.logits, plain.logits(batch).detach()), 1e-10);
  const Tensor loss = plain.loss(batch);
  EXPECT_LE(difference(ours.loss, loss.detach().reshape({1})), 1e-10);
  loss.backward();
  Tensors gradients;
  for (const auto& [name, t] : weights) gradients[name] = t.grad();
  const auto [off, name] = worst_difference(ours.gradients, gradients, 1e-3);
  EXPECT_LE(off, 1e-10) << name;
  for (const Mistake mistake :
       {Mistake::kSwappedHeads, Mistake::kShiftedPositions, Mistake::kNoCausalMask}) {
    const PlainGpt wrong(config, weights, mistake);
    EXPECT_GT(difference(wrong.logits(batch).detach(), ours.logits), 1e-3);
  }
}

TEST(QkNorm, IsInTheModel) {
  for (config::ModelConfig config : {gpt2_kind(), llama_kind()}) {
    config.qk_layernorm = true;
    expect_plain_writing(config);
    config.qk_norm_scope = "all-heads";
    if (config.normalization == "RMSNorm") expect_plain_writing(config);
    config.qk_layernorm = false;
    config.qk_l2_norm = true;
    expect_plain_writing(config);
  }
}

TEST(QkNorm, LayerAndL2NormExcludeEachOther) {
  config::ModelConfig config = llama_kind();
  config.qk_layernorm = config.qk_l2_norm = true;
  expect_error(ErrorKind::kConfig, "exclude each other",
               [&] { (void)plan_parameters(config, 1, 1); });
}

TEST(Alibi, IsInTheModel) {
  for (config::ModelConfig config : {gpt2_kind(), llama_kind()}) {
    config.position_embedding_type = "alibi";
    expect_plain_writing(config);
  }
}

// Documents of 5, 7 and 12 tokens: windows shorter than all and longer than some.
TEST(AttentionForms, AreInTheModel) {
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    const auto check = [&](auto change) {
      config::ModelConfig config = kind;
      change(config);
      expect_plain_writing(config);
    };
    for (const char* window : {"0,0", "1,0", "3,-1", "6,0", "100,0"}) {
      check([&](auto& c) { c.window_size = window; });
    }
    check([](auto& c) {
      c.window_size = "3,0";
      c.window_attn_skip_freq = "2";
    });
    check([](auto& c) { c.softmax_type = "off-by-one"; });
    check([](auto& c) { c.softmax_type = "learnable"; });
    check([](auto& c) { c.softmax_scale = 0.9; });
    check([](auto& c) { c.attn_logit_softcapping = 0.8; });
    check([](auto& c) { c.attention_output_gate = true; });
    check([](auto& c) {
      c.window_size = "4,0";
      c.window_attn_skip_freq = "2";
      c.softmax_type = "learnable";
      c.softmax_scale = 0.7;
      c.attn_logit_softcapping = 1.5;
      c.attention_output_gate = c.qk_layernorm = true;
    });
  }
}

// A window that is one key too wide is another model.
TEST(AttentionForms, AWindowOffByOneShows) {
  const Batch batch = make_batch({{5, 7}, {12}}, gpt2_kind().vocab_size);
  for (const char* window : {"0,0", "3,0", "10,0"}) {
    config::ModelConfig config = gpt2_kind();
    config.window_size = window;
    const Tensors weights = random_weights(config);
    const PlainGpt right(config, weights), wrong(config, weights, Mistake::kWiderWindow);
    EXPECT_GT(difference(wrong.logits(batch), right.logits(batch)), 1e-4) << window;
  }
}

TEST(AttentionForms, WeightsOfTheOptions) {
  config::ModelConfig config = llama_kind();
  const auto names = [&] {
    std::set<std::string> all;
    const auto plans = plan_parameters(config, 2, 1);
    for (const nn::PlannedParameter& parameter : plans[0][1].parameters()) {
      for (const nn::ShardPart& part : parameter.spec.parts) all.insert(part.name);
    }
    return all;
  };
  const std::string layer = "decoder.layers.1.self_attention.";
  for (const char* type : {"vanilla", "off-by-one"}) {
    config.softmax_type = type;
    EXPECT_FALSE(names().contains(layer + "core_attention.softmax_offset"));
  }
  config.softmax_type = "learnable";
  EXPECT_TRUE(names().contains(layer + "core_attention.softmax_offset"));
  EXPECT_FALSE(names().contains(layer + "linear_qkv.gate.weight"));
  config.attention_output_gate = true;
  EXPECT_TRUE(names().contains(layer + "linear_qkv.gate.weight"));
  const auto plans = plan_parameters(config, 2, 1);
  const nn::ShardPart sink =
      plans[0][1].at(layer + "core_attention.softmax_offset").spec.parts.at(0);
  EXPECT_EQ(sink.logical_shape, Shape{4});
  EXPECT_EQ(sink.box, (nn::Box{.offset = {2}, .size = {2}}));
  EXPECT_EQ(sink.split_axes, std::vector<std::string>{"tp"});
  EXPECT_FALSE(nn::decays(sink.role));
  EXPECT_EQ(sink.init.kind, nn::InitKind::kNormal);
  EXPECT_EQ(sink.init.std, config.init_method_std);
  const nn::ShardSpec qkv = plans[0][1].at(layer + "linear_qkv.weight").spec;
  EXPECT_EQ(qkv.parts.at(3).box.size, qkv.parts.at(0).box.size);
}

TEST(Forms, AreInTheModel) {
  const auto check = [](config::ModelConfig config, auto change) {
    change(config);
    expect_plain_writing(config);
  };
  check(gpt2_kind(), [](auto& c) { c.bias_gelu_fusion = false; });
  check(gpt2_kind(), [](auto& c) { c.add_bias_linear = false; });
  check(gpt2_kind(), [](auto& c) { c.squared_relu = true; });
  check(gpt2_kind(), [](auto& c) { c.apply_layernorm_1p = true; });
  check(gpt2_kind(), [](auto& c) {
    c.quick_geglu = true;
    c.glu_linear_offset = 1.0;
    c.activation_func_clamp_value = 0.4;
  });
  check(gpt2_kind(), [](auto& c) {
    c.add_bias_linear = false;
    c.openai_gelu = true;
  });
  check(gpt2_kind(), [](auto& c) {
    c.geglu = true;
    c.glu_linear_offset = 0.5;
  });
  check(llama_kind(), [](auto& c) { c.glu_linear_offset = 0.5; });
  check(llama_kind(), [](auto& c) { c.rotary_interleaved = true; });
  check(llama_kind(), [](auto& c) { c.rotary_seq_len_interpolation_factor = 3; });
  check(llama_kind(), [](auto& c) { c.no_rope_freq = "2"; });
  check(llama_kind(), [](auto& c) {
    c.apply_layernorm_1p = true;
    c.qk_layernorm = true;
  });
}

TEST(Gemma, MultiplierAndCapAreInTheModel) {
  for (config::ModelConfig config : {gpt2_kind(), llama_kind()}) {
    config.embedding_multiplier = 4.5;
    expect_plain_writing(config);
    config.final_logit_softcapping = 1.5;
    expect_plain_writing(config);
  }
}

// The multiplier is rounded to the compute dtype first: 4.9 is 4.90625 in bf16.
TEST(Gemma, MultiplierIsRoundedToTheComputeDtype) {
  config::ModelConfig config = gpt2_kind();
  config.position_embedding_type = "none";
  const Batch batch = make_batch({{12}}, config.vocab_size);
  Tensors weights = random_weights(config);
  config.embedding_multiplier = 4.9;
  const Outcome given = run_one(config, weights, batch, "bf16");
  config.embedding_multiplier = 4.90625;
  EXPECT_EQ(difference(given.logits, run_one(config, weights, batch, "bf16").logits), 0.0);
  const Outcome exact = run_one(config, weights, batch, "fp32");
  config.embedding_multiplier = 4.9;
  EXPECT_GT(difference(exact.logits, run_one(config, weights, batch, "fp32").logits), 0.0);
}

TEST(Mup, MultipliersAreInTheModel) {
  for (config::ModelConfig config : {gpt2_kind(), llama_kind()}) {
    config.use_mup = true;
    config.mup_embedding_mult = 3.5;
    expect_plain_writing(config);
    config.mup_output_mult = 0.3;
    config.softmax_scale = 1.0 / 6;
    expect_plain_writing(config);
    config.final_logit_softcapping = 1.5;  // of what was multiplied
    expect_plain_writing(config);
  }
}

TEST(Yarn, IsInTheModel) {
  config::ModelConfig config = llama_kind();
  config.position_embedding_type = "yarn";
  config.rotary_base = 100;
  config.rotary_scaling_factor = 8.0;
  config.yarn_original_max_position_embeddings = 64;
  config.yarn_beta_fast = 8.0;
  expect_plain_writing(config);
  config.yarn_correction_range_round_to_int = false;
  config.mscale = 2.0;
  config.mscale_all_dim = 0.5;
  config.rotary_interleaved = true;
  expect_plain_writing(config);
}

// Windows that are wider than the samples: what differs is the rotation.
TEST(RotaryBaseLocal, IsOfLayersWithAWindow) {
  config::ModelConfig config = llama_kind();
  config.window_size = "100,0";
  config.window_attn_skip_freq = "2";
  config.rotary_base_local = 50;
  config.rotary_seq_len_interpolation_factor = 3;
  expect_plain_writing(config);
  config.rotary_seq_len_interpolation_factor = 0;
  config.position_embedding_type = "yarn";
  config.rotary_scaling_factor = 8.0;
  config.yarn_original_max_position_embeddings = 64;
  expect_plain_writing(config);
}

TEST(LayerForms, AreInTheModel) {
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    const auto check = [&kind](auto change) {
      config::ModelConfig config = kind;
      change(config);
      expect_plain_writing(config);
    };
    check([](auto& c) { c.norm_placement = "post"; });
    check([](auto& c) { c.norm_placement = "both"; });
    check([](auto& c) { c.apply_residual_connection_post_layernorm = true; });
    check([](auto& c) {
      c.norm_placement = "both";
      c.apply_residual_connection_post_layernorm = true;
    });
    check([](auto& c) { c.parallel_attention = "shared-norm"; });
    check([](auto& c) { c.parallel_attention = "own-norms"; });
  }
}

// Against a second writing that rounds at the same places, in fp64. What stays of the forward is
// that the model sums in fp32: errors of 2^-20 or so, which may here and there decide between two
// neighbours in bf16. Such a flip moves one of 24 channels by 2^-8 of itself, and the logits by
// less than 2^-8 / sqrt(24) = 8e-4 of theirs; the bound allows two or three. Without the roundings
// both differ by more than 1e-2 (logits), so a place that rounds too little or twice shows.
// Backward rounds gradients (2^-9 each) at the same places too, but where two paths join, the model
// sums rounded terms: a few 2^-9 of the terms. Gradients whose terms cancel (k's bias is exactly
// zero) keep that error with little value, so each is measured against the model's larger ones.
void expect_same_roundings(const config::ModelConfig& config) {
  const Batch batch = make_batch({{12}, {12}}, config.vocab_size);
  Tensors weights = random_weights(config);
  for (auto& [name, t] : weights) t = t.to(DType::BFloat16).to(DType::Double);
  const Outcome ours = run_one(config, weights, batch, "bf16");
  for (auto& [name, t] : weights) t = t.clone().set_requires_grad(true);
  const PlainGpt plain(config, weights, Mistake::kNone, Rounding::kBf16);
  const Tensor loss = plain.loss(batch);
  loss.backward();
  Tensors gradients;
  for (const auto& [name, t] : weights) gradients[name] = t.grad();
  constexpr double kFlips = 2e-3;
  EXPECT_LE(difference(ours.logits, plain.logits(batch).detach()), kFlips);
  EXPECT_LE(difference(ours.loss, loss.detach().reshape({1})), 1e-4);
  const auto [off, name] = worst_difference(ours.gradients, gradients, 0.25);
  EXPECT_LE(off, 2e-2) << name;
  const PlainGpt exact(config, weights);
  EXPECT_GT(difference(ours.logits, exact.logits(batch).detach()), 5 * kFlips);
}

TEST_P(GptReference, Bf16RoundsWhereThePlainWritingRounds) {
  expect_same_roundings(GetParam() ? llama_kind() : gpt2_kind());
}

// --fp32-residual-connection: what is added up is not rounded.
TEST_P(GptReference, Fp32ResidualIsNotRounded) {
  const config::ModelConfig narrow = GetParam() ? llama_kind() : gpt2_kind();
  config::ModelConfig wide = narrow;
  wide.fp32_residual_connection = true;
  expect_same_roundings(wide);
  const Batch batch = make_batch({{12}, {12}}, wide.vocab_size);
  const Tensors weights = random_weights(wide);
  EXPECT_GT(difference(run_one(narrow, weights, batch, "bf16").logits,
                       run_one(wide, weights, batch, "bf16").logits),
            1e-3);
  expect_plain_writing(wide);
  wide.norm_placement = "post";
  expect_plain_writing(wide);
}

// Nor is it between stages.
TEST_P(GptReference, Fp32ResidualCrossesStages) {
  config::ModelConfig config = GetParam() ? llama_kind() : gpt2_kind();
  config.fp32_residual_connection = true;
  const Batch batch = make_batch({{12}, {12}}, config.vocab_size);
  const Tensors weights = random_weights(config);
  const auto run = [&](std::int64_t stages) {
    Gathered out;
    run_layout({1, false}, precision_policy("bf16"),
               [&](const parallel_layers::LeafContext& context) {
                 run_model(config, context, stages, weights, batch, out);
               });
    return out.tensors();
  };
  const Tensors two = run(2), one = run(1);
  EXPECT_EQ(difference(two.at("loss"), one.at("loss")), 0.0);
  // Both ends of a tied weight are summed in another order.
  const auto [off, name] = worst_difference(two, one);
  EXPECT_LE(off, 1e-6) << name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, GptReference, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Llama" : "Gpt2"; });

}  // namespace
}  // namespace pentatron::models
