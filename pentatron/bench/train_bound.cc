// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/train_bound.h"

#include <utility>
#include <vector>

#include "pentatron/config/choices.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/run_policy.h"

namespace pentatron::bench {
namespace {

// Sizes of a micro-batch as kernels see them.
struct Sizes {
  explicit Sizes(const config::RunConfig& config)
      : model(config.model),
        tokens(config.training.micro_batch_size * config.model.seq_length),
        query(config.model.num_attention_heads * config.model.kv_channels),
        keys(config.model.num_query_groups * config.model.kv_channels),
        gated(config.model.swiglu || config.model.geglu || config.model.quick_geglu),
        fc1((gated ? 2 : 1) * config.model.ffn_hidden_size),
        micro_batches(config.training.global_batch_size /
                      (config.training.micro_batch_size * config.parallel.data_parallel_size)),
        policy(training::run_policy(config)) {}

  [[nodiscard]] double elements(std::int64_t channels) const {
    return static_cast<double>(tokens) * static_cast<double>(channels);
  }

  const config::ModelConfig& model;
  std::int64_t tokens, query, keys;
  bool gated;
  std::int64_t fc1;
  std::int64_t micro_batches;
  PrecisionPolicy policy;
};

double layer_parameters(const Sizes& s) {
  const config::ModelConfig& m = s.model;
  if (m.multi_latent_attention) {
    return config::latent_projection_weights(m) +
           static_cast<double>(m.hidden_size) * static_cast<double>(s.fc1 + m.ffn_hidden_size);
  }
  return static_cast<double>(m.hidden_size) *
         static_cast<double>(2 * s.query + 2 * s.keys + s.fc1 + m.ffn_hidden_size);
}

// Outputs and inputs of the linear maps around attention.
std::vector<std::pair<std::int64_t, std::int64_t>> attention_products(const Sizes& s) {
  const config::ModelConfig& m = s.model;
  const std::int64_t h = m.hidden_size, values = m.num_attention_heads * config::value_channels(m);
  if (!m.multi_latent_attention) return {{s.query + 2 * s.keys, h}, {h, values}};
  std::vector<std::pair<std::int64_t, std::int64_t>> products = {
      {m.kv_lora_rank + m.qk_pos_emb_head_dim, h},
      {m.num_attention_heads * m.qk_head_dim + values, m.kv_lora_rank},
      {h, values}};
  if (m.q_lora_rank > 0) products.emplace_back(m.q_lora_rank, h);
  products.emplace_back(s.query, m.q_lora_rank > 0 ? m.q_lora_rank : h);
  return products;
}

double layer_bytes(const Sizes& s) {
  constexpr double kNormsBothWays = 2 * (4 + 4);
  const config::ModelConfig& m = s.model;
  const auto item = static_cast<double>(tensor::item_bytes(s.policy.compute));
  double bytes = kNormsBothWays * s.elements(m.hidden_size) * item;
  if (config::position_kind(m) == config::PositionKind::kRope)
    bytes += 4 * s.elements(s.query + s.keys) * item;
  bytes += (s.gated ? 3 + 5 : 2 + 3) * s.elements(m.ffn_hidden_size) * item;
  if (!m.fp8.empty()) {
    // Under its own largest value a tensor is read twice unless a norm or a gate has noted that.
    const config::Fp8Scaling scaling = config::fp8_scaling(m);
    const double once = item + 2,
                 own = (scaling == config::Fp8Scaling::kTensorwise ? 2 : 1) * item + 2;
    const double gate = s.gated ? once : own;
    // Inputs of the four products, then gradients of their outputs.
    bytes += once * s.elements(2 * m.hidden_size) + own * s.elements(s.query) +
             gate * s.elements(m.ffn_hidden_size);
    bytes += own * s.elements(2 * m.hidden_size + s.query + 2 * s.keys) + gate * s.elements(s.fc1);
  }
  return bytes;
}

}  // namespace

TrainBytes train_bytes(const config::RunConfig& config) {
  const Sizes s(config);
  const config::ModelConfig& m = s.model;
  const auto item = [](DType dtype) { return static_cast<double>(tensor::item_bytes(dtype)); };
  TrainBytes bytes;
  bytes.micro_batch = static_cast<double>(m.num_layers) * layer_bytes(s);
  bytes.micro_batch += 2 * s.elements(m.padded_vocab_size) * item(s.policy.logits);
  // Final norm (2 and 3 rows), embedding forward (2), its gradient read and added into fp32.
  bytes.micro_batch += s.elements(m.hidden_size) *
                       ((2 + 3 + 2 + 1) * item(s.policy.compute) + 2 * item(s.policy.main_grad));
  const double head = static_cast<double>(m.padded_vocab_size) * static_cast<double>(m.hidden_size);
  const double parameters = static_cast<double>(m.num_layers) * layer_parameters(s) +
                            (m.untie_embeddings_and_output_weights ? 2 : 1) * head;
  double each =
      2 * item(s.policy.main_grad) + 2 * item(s.policy.main_parameter) + 4 * item(s.policy.state);
  if (s.policy.parameter != s.policy.main_parameter) each += item(s.policy.parameter);
  bytes.optimizer = parameters * each;
  return bytes;
}

TrainBound train_bound(Device device, const config::RunConfig& config,
                       double copy_bytes_per_second) {
  const Sizes s(config);
  const config::ModelConfig& m = s.model;
  const DType dtype = s.policy.compute;
  const auto times = [&](std::int64_t outputs, std::int64_t inputs, bool fp8) {
    const Operands operands = !fp8 ? Operands::kCompute
                              : config::fp8_scaling(m) == config::Fp8Scaling::kBlockwise
                                  ? Operands::kFp8Blocks
                                  : Operands::kFp8;
    return time_products(device, {"", s.tokens, outputs, inputs}, dtype, operands).total();
  };
  const bool fp8 = !m.fp8.empty();
  double layer = times(s.fc1, m.hidden_size, fp8) + times(m.hidden_size, m.ffn_hidden_size, fp8);
  for (const auto& [outputs, inputs] : attention_products(s)) layer += times(outputs, inputs, fp8);
  const double head = times(m.padded_vocab_size, m.hidden_size, fp8 && m.fp8_output_proj);
  const AttentionTimes attention =
      time_attention(device,
                     {"", config.training.micro_batch_size, m.seq_length, m.num_attention_heads,
                      m.num_query_groups, m.kv_channels},
                     dtype);
  const auto count = static_cast<double>(s.micro_batches);
  const double layers = count * static_cast<double>(m.num_layers);
  const TrainBytes bytes = train_bytes(config);
  return {.layer_products = layers * layer,
          .head_products = count * head,
          .attention = layers * (attention.forward + attention.backward),
          .memory = count * bytes.micro_batch / copy_bytes_per_second,
          .optimizer = bytes.optimizer / copy_bytes_per_second};
}

}  // namespace pentatron::bench
