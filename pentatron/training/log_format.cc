// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/log_format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "pentatron/config/heterogeneous_layers.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/training/scalar_forms.h"

namespace pentatron::training {

std::string format_iteration_line(const IterationTitle& title, const nn::StepScalars& scalars) {
  std::vector<std::pair<int, std::string>> fields;
  for (const nn::StepScalar& scalar : scalars) {
    const ScalarForm form = form_of(scalar);
    if (form.line.empty() || !std::isfinite(scalar.value)) continue;
    fields.emplace_back(
        form.place,
        fmt::format(" {}: {} |", scalar.name, fmt::format(fmt::runtime(form.line), scalar.value)));
  }
  std::stable_sort(fields.begin(), fields.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text = fmt::format(" [{}] iteration {:8d}/{:8d} |", title.timestamp, title.iteration,
                                 title.train_iters);
  for (const auto& [place, field] : fields) text += field;
  return text;
}

double perplexity(double loss) {
  constexpr double kLargestExponent = 20.0;
  return std::isnan(loss) ? loss : std::exp(std::min(kLargestExponent, loss));
}

std::string format_evaluation_block(std::string_view where, double lm_loss,
                                    std::string_view set_name) {
  // "NAN" as Python prints it, without the sign that arithmetic leaves.
  if (std::isnan(lm_loss)) lm_loss = std::fabs(lm_loss);
  const std::string line =
      fmt::format(" validation{}{} loss at {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ",
                  set_name.empty() ? "" : "-", set_name, where, lm_loss, perplexity(lm_loss));
  const std::string dashes(line.size() + 1, '-');
  return fmt::format("{}\n{}\n{}", dashes, line, dashes);
}

std::string current_timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
      1'000'000;
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:06d}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(now)), micros);
}

std::string current_datetime() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

std::string format_duration(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= kHour) return fmt::format("{}h {:02d}m", whole / kHour, whole % kHour / kMinute);
  if (whole >= kMinute) return fmt::format("{}m {:02d}s", whole / kMinute, whole % kMinute);
  return fmt::format("{}s", whole);
}

double model_flops(const FlopsInput& in) {
  // 6 = forward plus two backward products, 2 per multiply-add; the causal half cancels attention's
  // two products.
  constexpr double kPerWeight = 6.0;
  const auto h = static_cast<double>(in.hidden);
  const auto q = static_cast<double>(in.query_projection);
  const auto kv = static_cast<double>(in.kv_projection);
  const auto layers = static_cast<double>(in.num_layers);
  const double ffn_factor = in.swiglu ? 3.0 : 2.0;
  const double mlp = h * ffn_factor * static_cast<double>(in.ffn_hidden) * layers;
  const double gate = in.attention_output_gate ? q : 0.0;
  const double attention = layers * (h * (q + gate + 2.0 * kv) + q * h);
  const double head = h * static_cast<double>(in.padded_vocab);
  return kPerWeight * in.tokens * (mlp + attention + head) +
         kPerWeight * in.sum_squared_lengths * layers * q;
}

namespace {

// Of heterogeneous layers, one by one; `whole` is of the model if all were as its options say.
double heterogeneous_flops(const config::ModelConfig& m, const FlopsInput& whole) {
  using config::SublayerForm;
  FlopsInput head = whole;
  head.num_layers = 0;
  double flops = model_flops(head);
  const auto h = static_cast<double>(m.hidden_size);
  const double linear = 6.0 * whole.tokens * h * h;
  for (const config::LayerShape& shape : config::layer_shapes(m)) {
    FlopsInput layer = whole;
    layer.num_layers = 1;
    layer.padded_vocab = 0;
    layer.ffn_hidden = shape.ffn_hidden_size;
    layer.kv_projection = shape.num_query_groups * m.kv_channels;
    if (shape.attention != SublayerForm::kUsual) layer.query_projection = 0;
    flops += model_flops(layer);
    if (shape.attention == SublayerForm::kLinear) flops += linear;
    if (shape.mlp == SublayerForm::kLinear) flops += linear;
  }
  return flops;
}

// Of multi-latent attention; `whole` is of the model, for its other parts.
double latent_flops(const config::ModelConfig& m, const FlopsInput& whole) {
  FlopsInput others = whole;
  others.query_projection = 0;
  others.kv_projection = 0;
  // Half of the products of queries with keys and of probabilities with values is masked.
  const auto products = static_cast<double>(m.num_attention_heads) *
                        static_cast<double>(m.kv_channels + m.v_head_dim) / 2.0;
  return model_flops(others) + 6.0 * static_cast<double>(m.num_layers) *
                                   (whole.tokens * config::latent_projection_weights(m) +
                                    whole.sum_squared_lengths * products);
}

}  // namespace

double model_flops(const config::ModelConfig& m, double num_samples) {
  const auto length = static_cast<double>(m.seq_length);
  const FlopsInput in{.tokens = num_samples * length,
                      .sum_squared_lengths = num_samples * length * length,
                      .num_layers = m.num_layers,
                      .hidden = m.hidden_size,
                      .ffn_hidden = m.ffn_hidden_size,
                      .query_projection = m.num_attention_heads * m.kv_channels,
                      .kv_projection = m.num_query_groups * m.kv_channels,
                      .padded_vocab = m.padded_vocab_size,
                      .swiglu = m.swiglu || m.geglu || m.quick_geglu,
                      .attention_output_gate = m.attention_output_gate};
  if (m.multi_latent_attention) return latent_flops(m, in);
  const bool equal_layers = m.heterogeneous_layers_config_encoded_json.empty();
  return equal_layers ? model_flops(in) : heterogeneous_flops(m, in);
}

}  // namespace pentatron::training
