// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/config/context_comm.h"
#include "pentatron/config/heterogeneous_layers.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/recipe.h"
#include "pentatron/parallel_layers/adapter_form.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/parallel_layers/norm_form.h"

// What each layer of a model is: pure data from which its weights are planned and its modules made.
// Layers of one model may differ.
namespace pentatron::transformer {

// Of heterogeneous layers either half may be a linear layer instead, or nothing; what else its spec
// says counts for nothing then.
using config::SublayerForm;

// What mixes tokens: multi-head (or grouped-query) causal self-attention.
struct AttentionSpec {
  SublayerForm form = SublayerForm::kUsual;
  std::int64_t num_query_groups = 0;
  bool rotary = false;        // queries and keys are rotated
  bool local_rotary = false;  // by the angles of --rotary-base-local
  std::int64_t window = -1;   // keys before its own place that a query sees at most; -1: all
  // With samples that are cut over context-parallel ranks
  config::ContextComm context_comm = config::ContextComm::kP2p;
};

// What follows, token by token: an activation, or one gated by as many channels beside it.
struct MlpSpec {
  SublayerForm form = SublayerForm::kUsual;
  std::int64_t ffn_hidden_size = 0;
  ops::Activation activation = ops::Activation::kGeluTanh;
  std::optional<ops::Gate> gate = {};  // instead of `activation`
};

struct LayerSpec {
  AttentionSpec mixer;
  MlpSpec ffn;
  // Where normalisations stand: on what mixer and ffn read, on what they give before it is added to
  // the residual stream, or on both.
  bool norms_inputs = true;
  bool norms_outputs = false;
  // The ffn reads what the mixer reads, beside it: x + mixer + ffn.
  bool parallel = false;
  bool shared_norm = false;  // of a parallel layer: one norm for both inputs
  // What is added to is the normalised input instead of the input.
  bool residual_after_norm = false;
  ops::Recipe recipe = {};  // of the products of its linear maps
  std::optional<parallel_layers::DelayedScaling> delayed_scaling = {};

  [[nodiscard]] bool has_mixer() const { return mixer.form != SublayerForm::kNone; }
  [[nodiscard]] bool has_ffn() const { return ffn.form != SublayerForm::kNone; }
};

// The normalisation of a model.
[[nodiscard]] parallel_layers::NormForm norm_form(const config::ModelConfig& config);

// The low-rank adapters of a model.
[[nodiscard]] parallel_layers::AdapterForm adapter_form(const config::ModelConfig& config);

// Standard deviation of the initial values of layers: --init-method-std, with --use-mup divided by
// the root of the width's factor.
[[nodiscard]] double hidden_init_std(const config::ModelConfig& config);
// Of projections back into the residual stream: the same / sqrt(2 layers).
[[nodiscard]] double output_init_std(const config::ModelConfig& config);

// How linear maps are multiplied by --fp8-format and its options: of layer `layer`, counted from 0
// (--first-last-layers-bf16 leaves some in the compute dtype), and of the output layer.
[[nodiscard]] ops::Recipe layer_recipe(const config::ModelConfig& config, std::int64_t layer);
[[nodiscard]] ops::Recipe output_recipe(const config::ModelConfig& config);

// The layers of a model as its options say, one entry a layer; `config` is resolved.
[[nodiscard]] std::vector<LayerSpec> layer_specs(const config::ModelConfig& config);

}  // namespace pentatron::transformer
