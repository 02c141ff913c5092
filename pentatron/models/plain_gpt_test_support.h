// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/parallel_layers/test_support.h"

// A second writing of both model kinds, in plain library operations and the library's own
// derivatives: it shares no op, module or naming code with the model. Weights by part name. Only
// tests include it.
namespace pentatron::test_support {

// kBf16: every value that the model keeps in bf16 (weights, and what each op hands on) is rounded
// to bf16 here too, once a place, and its gradient with it; all else stays in the weights' dtype.
enum class Rounding { kNone, kBf16 };

// One deliberate mistake.
enum class Mistake { kNone, kSwappedHeads, kShiftedPositions, kNoCausalMask, kWiderWindow };

class PlainGpt {
 public:
  PlainGpt(const config::ModelConfig& config, Tensors weights, Mistake mistake = Mistake::kNone,
           Rounding rounding = Rounding::kNone)
      : c_(config), w_(std::move(weights)), mistake_(mistake), rounding_(rounding) {}

  // [tokens, vocabulary].
  Tensor logits(const Batch& batch) const {
    Tensor x = w("embedding.word_embeddings.weight").index_select(0, batch.tokens());
    if (c_.embedding_multiplier) x = x.mul(*c_.embedding_multiplier);
    if (c_.position_embedding_type == "learned_absolute") {
      const Tensor at = mistake_ == Mistake::kShiftedPositions ? batch.text().positions().add(1)
                                                               : batch.text().positions();
      x = rounded(x.add(w("embedding.position_embeddings.weight").index_select(0, at)));
    }
    if (c_.use_mup) x = x.mul(c_.mup_embedding_mult);
    for (std::int64_t n = 0; n < c_.num_layers; ++n) {
      const std::string layer = "decoder.layers." + std::to_string(n) + ".";
      x = transformer_layer(x, layer, batch, n);
    }
    x = norm(x, "decoder.final_layernorm");
    Tensor y = x.mm(w(c_.untie_embeddings_and_output_weights ? "output_layer.weight"
                                                             : "embedding.word_embeddings.weight")
                        .t());
    if (c_.use_mup) y = y.mul(c_.mup_output_mult);
    if (!c_.final_logit_softcapping) return y;
    const double cap = *c_.final_logit_softcapping;
    return y.div(cap).tanh().mul(cap);
  }

  // Sum of mask x cross entropy.
  Tensor loss(const Batch& batch) const {
    const Tensor log_p = rounded(logits(batch)).log_softmax(1);
    return log_p.gather(1, batch.labels().unsqueeze(1))
        .squeeze(1)
        .mul(batch.loss_mask().to(log_p.scalar_type()))
        .sum()
        .neg();
  }

 private:
  const Tensor& w(const std::string& name) const { return w_.at(name); }

  Tensor transformer_layer(const Tensor& x, const std::string& layer, const Batch& batch,
                           std::int64_t n) const {
    if (!c_.heterogeneous_layers_config_encoded_json.empty()) {
      return heterogeneous_layer(x, layer, batch, n);
    }
    const bool pre = c_.norm_placement != "post", post = c_.norm_placement != "pre";
    const auto norm_if = [&](bool wanted, const Tensor& of, const char* name) {
      return wanted ? norm(of, layer + name) : of;
    };
    const Tensor read = norm_if(pre, x, "input_layernorm");
    const Tensor attended = norm_if(post, attention(read, layer + "self_attention.", batch, n),
                                    "post_self_attn_layernorm");
    if (c_.parallel_attention != "none") {
      const bool shared = c_.parallel_attention == "shared-norm";
      const Tensor mixed =
          mlp(shared ? read : norm(x, layer + "pre_mlp_layernorm"), layer + "mlp.");
      return stream(stream(x.add(attended)).add(mixed));
    }
    const bool after = c_.apply_residual_connection_post_layernorm;
    const Tensor middle = stream((after ? read : x).add(attended));
    const Tensor read_mlp = norm_if(pre, middle, "pre_mlp_layernorm");
    const Tensor mixed = norm_if(post, mlp(read_mlp, layer + "mlp."), "post_mlp_layernorm");
    return stream((after ? read_mlp : middle).add(mixed));
  }

  // Its weights tell what a layer is.
  Tensor heterogeneous_layer(const Tensor& x, const std::string& layer, const Batch& batch,
                             std::int64_t n) const {
    const std::string mixer = layer + "self_attention", ffn = layer + "mlp";
    Tensor y = x;
    if (w_.contains(mixer + ".weight")) {
      y = stream(y.add(linear(norm(y, layer + "input_layernorm"), mixer)));
    } else if (w_.contains(mixer + ".linear_proj.weight")) {
      y = stream(y.add(attention(norm(y, layer + "input_layernorm"), mixer + ".", batch, n)));
    }
    if (w_.contains(ffn + ".weight")) {
      y = stream(y.add(linear(norm(y, layer + "pre_mlp_layernorm"), ffn)));
    } else if (w_.contains(ffn + ".linear_fc2.weight")) {
      y = stream(y.add(mlp(norm(y, layer + "pre_mlp_layernorm"), ffn + ".")));
    }
    return y;
  }

  Tensor rounded(const Tensor& x) const {
    return rounding_ == Rounding::kNone ? x : x.to(DType::BFloat16).to(x.scalar_type());
  }

  // The residual stream.
  Tensor stream(const Tensor& x) const { return c_.fp32_residual_connection ? x : rounded(x); }

  // The bias is added to the product as it is kept.
  Tensor linear(const Tensor& x, const std::string& name) const {
    const Tensor y = rounded(x.mm(w(name + ".weight").t()));
    return w_.contains(name + ".bias") ? rounded(y.add(w(name + ".bias"))) : y;
  }

  Tensor norm(const Tensor& x, const std::string& name) const {
    const bool layer_norm = c_.normalization == "LayerNorm";
    const Tensor centred = layer_norm ? x.sub(x.mean({-1}, true)) : x;
    const Tensor spread = centred.pow(2).mean({-1}, true).add(c_.layernorm_epsilon).sqrt();
    const Tensor weight =
        c_.apply_layernorm_1p ? w(name + ".weight").add(1.0) : w(name + ".weight");
    const Tensor y = centred.div(spread).mul(weight);
    return rounded(layer_norm ? y.add(w(name + ".bias")) : y);
  }

  Tensor mlp(const Tensor& x, const std::string& name) const {
    if (c_.swiglu || c_.quick_geglu || c_.geglu) {
      Tensor gate = linear(x, name + "linear_fc1.gate");
      Tensor up = linear(x, name + "linear_fc1.up");
      if (c_.activation_func_clamp_value) {
        gate = gate.clamp_max(*c_.activation_func_clamp_value);
        up = up.clamp(-*c_.activation_func_clamp_value, *c_.activation_func_clamp_value);
      }
      const double slope = c_.quick_geglu ? 1.702 : 1.0;
      const Tensor open = c_.geglu ? gelu_tanh(gate) : gate.mul(gate.mul(slope).sigmoid());
      const Tensor gated = open.mul(up.add(c_.glu_linear_offset));
      return linear(rounded(gated), name + "linear_fc2");
    }
    const Tensor h = linear(x, name + "linear_fc1");
    if (c_.squared_relu) return linear(rounded(h.relu().pow(2)), name + "linear_fc2");
    const bool biased = c_.add_bias_linear || c_.add_mlp_bias;
    if ((!biased || !c_.bias_gelu_fusion) && !c_.openai_gelu) {
      const Tensor erf = h.mul(std::sqrt(0.5)).erf();
      return linear(rounded(h.mul(erf.add(1.0)).mul(0.5)), name + "linear_fc2");
    }
    return linear(rounded(gelu_tanh(h)), name + "linear_fc2");
  }

  static Tensor gelu_tanh(const Tensor& h) {
    const double root = std::sqrt(2.0 / 3.14159265358979323846);
    const Tensor inner = h.add(h.pow(3).mul(0.044715)).mul(root).tanh();
    return h.mul(inner.add(1.0)).mul(0.5);
  }

  // Whether --window-attn-skip-freq leaves the layer out: every n-th one, or those with a 0 in a
  // list of all ("[1,0,1]").
  static bool left_out(const std::string& pattern, std::int64_t layer) {
    if (pattern.empty()) return false;
    if (pattern[0] == '[') return pattern.at(static_cast<std::size_t>(2 * layer + 1)) == '0';
    return (layer + 1) % std::stoll(pattern) == 0;
  }

  bool windowed(std::int64_t layer) const {
    return !c_.window_size.empty() && !left_out(c_.window_attn_skip_freq, layer);
  }

  // With --position-embedding-type yarn: pairs from `last` on are slowed down by the factor, those
  // up to `first` not at all. And the length that a vector of length 1 gets.
  Tensor yarn_frequencies(const Tensor& frequencies, std::int64_t d) const {
    const double trained = c_.yarn_original_max_position_embeddings > 0
                               ? static_cast<double>(c_.yarn_original_max_position_embeddings)
                               : 4096.0;
    const auto pair_turning = [&](double times) {
      const double wave = trained / times;  // 2 pi base^(2 i / d)
      return 0.5 * static_cast<double>(d) * std::log(wave / 6.283185307179586) /
             std::log(c_.rotary_base);
    };
    double first = pair_turning(c_.yarn_beta_fast), last = pair_turning(c_.yarn_beta_slow);
    if (c_.yarn_correction_range_round_to_int) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(d - 1));
    const Tensor slowed =
        tensor::arange(d / 2, DType::Double).sub(first).div(last - first).clamp(0.0, 1.0);
    return frequencies.mul(slowed.mul(1.0 / c_.rotary_scaling_factor - 1.0).add(1.0));
  }
  double yarn_length() const {
    const double log_factor = std::log(std::max(c_.rotary_scaling_factor, 1.0));
    return (1.0 + 0.1 * c_.mscale * log_factor) / (1.0 + 0.1 * c_.mscale_all_dim * log_factor);
  }

  // Llama 3.1's, of a model that was trained on 8192 tokens first: frequencies that turn four times
  // or more over them stay, those that turn once or less are slowed down, in between in part.
  Tensor llama3_frequencies(const Tensor& frequencies) const {
    const Tensor turns = frequencies.mul(8192.0 / 6.283185307179586);
    const Tensor kept = turns.sub(1.0).div(4.0 - 1.0).clamp(0.0, 1.0);
    return frequencies.mul(kept.add(kept.mul(-1.0).add(1.0).div(c_.rope_scaling_factor)));
  }

  // One head of one segment, [s, d]; channels behind the share that turns stay as they are.
  Tensor rotate(const Tensor& x, const Tensor& positions, const Tensor& axes,
                std::int64_t layer) const {
    const auto turning =
        static_cast<std::int64_t>(static_cast<double>(x.size(1)) * c_.rotary_percent);
    const Tensor turned = turn(x.narrow(1, 0, turning), positions, axes, layer);
    return tensor::cat({turned, x.narrow(1, turning, x.size(1) - turning)}, 1);
  }

  // With the angle p / base^(2i/d) on channels i and i + d/2 of d. `axes` [s, 3]: positions in
  // time, height and width; undefined: all are `positions`.
  Tensor turn(const Tensor& x, const Tensor& positions, const Tensor& axes,
              std::int64_t layer) const {
    const bool local = c_.rotary_base_local > 0 && windowed(layer);
    const bool yarn = !local && (c_.multi_latent_attention ? c_.rope_type != "rope"
                                                           : c_.position_embedding_type == "yarn");
    const std::int64_t half = x.size(1) / 2;
    const Tensor exponents =
        tensor::arange(half, DType::Double).mul(2.0 / static_cast<double>(x.size(1)));
    const double base = local ? c_.rotary_base_local : c_.rotary_base;
    Tensor frequencies = exponents.mul(-std::log(base)).exp();
    if (c_.use_rope_scaling && !local) frequencies = llama3_frequencies(frequencies);
    if (c_.rotary_seq_len_interpolation_factor > 0 && !local) {
      frequencies = frequencies.div(static_cast<double>(c_.rotary_seq_len_interpolation_factor));
    }
    if (yarn) frequencies = yarn_frequencies(frequencies, x.size(1));
    double length = yarn ? yarn_length() : 1.0;
    if (c_.position_embedding_type == "longrope") {
      const auto original = static_cast<double>(c_.longrope_original_max_position_embeddings);
      const bool beyond = positions.max().item().toDouble() + 1.0 > original;
      std::vector<double> factors;
      for (const std::string& f : beyond ? c_.longrope_long_factor : c_.longrope_short_factor) {
        factors.push_back(std::stod(f));
      }
      frequencies = frequencies.div(tensor::from_vector(factors));
      const double scale = static_cast<double>(c_.max_position_embeddings) / original;
      if (scale > 1.0) length = std::sqrt(1.0 + std::log(scale) / std::log(original));
    }
    Tensor angles = positions.to(DType::Double).unsqueeze(1).mul(frequencies.unsqueeze(0));
    if (axes.defined()) {
      std::int64_t pair = 0;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        for (std::int64_t n = std::stoll(c_.mrope_section[axis]); n > 0; --n, ++pair) {
          angles.select(1, pair).copy_(axes.select(1, static_cast<std::int64_t>(axis))
                                           .to(DType::Double)
                                           .mul(frequencies.select(0, pair)));
        }
      }
    }
    const Tensor cos = angles.cos().mul(length).to(x.scalar_type());
    const Tensor sin = angles.sin().mul(length).to(x.scalar_type());
    if (c_.rotary_interleaved) {
      const Tensor pairs = x.view({x.size(0), half, 2});
      const Tensor p = pairs.select(2, 0), q = pairs.select(2, 1);
      return rounded(tensor::stack({p.mul(cos).sub(q.mul(sin)), q.mul(cos).add(p.mul(sin))}, 2)
                         .reshape(x.sizes()));
    }
    const Tensor a = x.narrow(1, 0, half);
    const Tensor b = x.narrow(1, half, half);
    return rounded(tensor::cat({a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))}, 1));
  }

  Tensor head_norm(const Tensor& x, const std::string& name) const {
    if (c_.qk_layernorm) return norm(x, name);
    return rounded(x.div(x.pow(2).mean({-1}, true).add(c_.layernorm_epsilon).sqrt()));
  }

  // Slope of head j times the distance of query and key, [size, size]; heads a power of two.
  Tensor distances(std::int64_t size, std::int64_t head) const {
    const double slope = std::pow(
        2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(c_.num_attention_heads));
    const auto narrow = [&](const Tensor& x) {
      return c_.alibi_in_bf16 ? x.to(DType::BFloat16).to(DType::Double) : x;
    };
    const Tensor at = narrow(narrow(tensor::arange(size, DType::Double))
                                 .mul(narrow(tensor::full({1}, slope, DType::Double))));
    return at.unsqueeze(1)
        .sub(at.unsqueeze(0))
        .abs()
        .mul(c_.alibi_scale)
        .to(w_.begin()->second.scalar_type());
  }

  // Learned biases of head j by distance, [size, size]: of distances below half of the buckets one
  // each, the others on a logarithmic scale up to the largest distance.
  Tensor biases(std::int64_t size, std::int64_t head) const {
    const std::int64_t buckets = c_.relative_attention_num_buckets, near = buckets / 2;
    const auto furthest = static_cast<double>(c_.relative_attention_max_distance);
    const Tensor column =
        w("decoder_relative_pos_emb.relative_attention_bias.weight").select(1, head);
    std::vector<std::int64_t> bucket;
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) {
        const std::int64_t back = std::max<std::int64_t>(i - j, 0);
        const double scale = std::log(static_cast<double>(std::max(back, near)) / near) /
                             std::log(furthest / static_cast<double>(near));
        const auto far =
            near + static_cast<std::int64_t>(scale * static_cast<double>(buckets - near));
        bucket.push_back(back < near ? back : std::min(far, buckets - 1));
      }
    }
    return column.index_select(0, tensor::from_vector(bucket)).view({size, size});
  }

  // Keys before its own that a query of the layer sees; all of them without a window.
  std::int64_t window(std::int64_t layer) const {
    if (!windowed(layer)) return c_.seq_length;
    return std::stoll(c_.window_size) + (mistake_ == Mistake::kWiderWindow ? 1 : 0);
  }

  double usual_scale() const {
    if (!c_.multi_latent_attention) return 1.0 / std::sqrt(static_cast<double>(c_.kv_channels));
    const double length =
        1.0 + 0.1 * c_.mscale_all_dim * std::log(std::max(c_.rotary_scaling_factor, 1.0));
    return length * length /
           std::sqrt(static_cast<double>(c_.qk_head_dim + c_.qk_pos_emb_head_dim));
  }

  // Probabilities of the keys of one head of one segment, from q k^T, [size, size].
  Tensor probabilities(const Tensor& products, const std::string& name, std::int64_t head,
                       std::int64_t layer) const {
    const std::int64_t size = products.size(0);
    Tensor scores = products.mul(c_.softmax_scale.value_or(usual_scale()));
    if (c_.attn_logit_softcapping) {
      const double cap = *c_.attn_logit_softcapping;
      scores = scores.div(cap).tanh().mul(cap);
    }
    if (c_.position_embedding_type == "alibi") scores = scores.sub(distances(size, head));
    if (c_.position_embedding_type == "relative") scores = scores.add(biases(size, head));
    const auto hide = [&](const Tensor& hidden) {
      scores = scores.masked_fill(hidden.gt(0.5), -std::numeric_limits<double>::infinity());
    };
    const Tensor all = tensor::ones({size, size}, DType::Double);
    if (mistake_ != Mistake::kNoCausalMask) hide(all.triu(1));
    hide(all.tril(-window(layer) - 1));
    if (c_.softmax_type == "vanilla") return scores.softmax(-1);
    const Tensor sink = c_.softmax_type == "learnable"
                            ? w(name + "core_attention.softmax_offset").narrow(0, head, 1)
                            : tensor::zeros({1}, scores.scalar_type());
    return tensor::cat({scores, sink.view({1, 1}).expand({size, 1})}, 1)
        .softmax(-1)
        .narrow(1, 0, size);
  }

  // Rotated channels of multi-latent attention, [s, d], in Megatron's order: of those that turn the
  // even ones and then the odd ones, whose halves turn against each other.
  Tensor rotate_latent(const Tensor& x, const Tensor& positions, std::int64_t layer) const {
    const double share = c_.rope_type == "rope" ? c_.rotary_percent : 1.0;
    const auto turning = static_cast<std::int64_t>(static_cast<double>(x.size(1)) * share);
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < turning; ++i) {
      order.push_back(i < turning / 2 ? 2 * i : 2 * i - turning + 1);
    }
    const Tensor halves = x.narrow(1, 0, turning).index_select(1, tensor::from_vector(order));
    return tensor::cat(
        {turn(halves, positions, {}, layer), x.narrow(1, turning, x.size(1) - turning)}, 1);
  }

  // Multi-latent attention as DeepSeek-V2 writes it, head by head: scores are the products of
  // channels without position plus those of rotated channels, of which keys have one set.
  Tensor latent_attention(const Tensor& x, const std::string& name, const Batch& batch,
                          std::int64_t layer) const {
    const std::int64_t plain = c_.qk_head_dim, turned = c_.qk_pos_emb_head_dim;
    const std::int64_t value = c_.v_head_dim, rank = c_.kv_lora_rank;
    const auto latent = [&](const Tensor& of, const char* norm_name) {
      return c_.qk_layernorm ? norm(of, name + norm_name) : of;
    };
    const Tensor q = c_.q_lora_rank == 0
                         ? linear(x, name + "linear_q_proj")
                         : linear(latent(linear(x, name + "linear_q_down_proj"), "q_layernorm"),
                                  name + "linear_q_up_proj");
    const Tensor down = linear(x, name + "linear_kv_down_proj");
    const Tensor kv =
        linear(latent(down.narrow(1, 0, rank), "kv_layernorm"), name + "linear_kv_up_proj");
    std::vector<Tensor> segments;
    for (const AttentionSegment& segment : batch.text().attention()->segments) {
      const auto rows = [&](const Tensor& t) {
        return t.narrow(0, segment.q_begin, segment.q_len);
      };
      const Tensor at = rows(batch.text().positions());
      const Tensor k_turned = rotate_latent(rows(down).narrow(1, rank, turned), at, layer);
      const bool shifted = mistake_ == Mistake::kShiftedPositions;
      std::vector<Tensor> heads;
      for (std::int64_t j = 0; j < c_.num_attention_heads; ++j) {
        const Tensor qj = rows(q).narrow(1, j * (plain + turned), plain + turned);
        const Tensor kvj = rows(kv).narrow(1, j * (plain + value), plain + value);
        const Tensor q_turned =
            rotate_latent(qj.narrow(1, plain, turned), shifted ? at.add(1) : at, layer);
        const Tensor products =
            qj.narrow(1, 0, plain).mm(kvj.narrow(1, 0, plain).t()).add(q_turned.mm(k_turned.t()));
        heads.push_back(probabilities(products, name, j, layer).mm(kvj.narrow(1, plain, value)));
      }
      if (mistake_ == Mistake::kSwappedHeads) std::swap(heads[1], heads[2]);
      segments.push_back(tensor::cat(heads, 1));
    }
    return linear(rounded(tensor::cat(segments, 0)), name + "linear_proj");
  }

  Tensor attention(const Tensor& x, const std::string& name, const Batch& batch,
                   std::int64_t layer) const {
    if (c_.multi_latent_attention) return latent_attention(x, name, batch, layer);
    // Of --no-rope-freq the numbers only.
    const std::string& type = c_.position_embedding_type;
    const bool rotates =
        (type == "rope" || type == "yarn" || type == "longrope" || type == "mrope") &&
        (c_.no_rope_freq.empty() || (layer + 1) % std::stoll(c_.no_rope_freq) != 0);
    const std::int64_t d = c_.kv_channels;
    const std::int64_t share =
        c_.num_attention_heads / (w(name + "linear_qkv.k.weight").size(0) / d);
    const bool norm_all = c_.qk_layernorm && c_.qk_norm_scope == "all-heads";
    const auto channels = [&](const char* part, const char* norm_name) {
      const Tensor y = linear(x, name + part);
      return norm_all ? norm(y, name + norm_name) : y;
    };
    const Tensor q = channels("linear_qkv.q", "q_layernorm");
    const Tensor k = channels("linear_qkv.k", "k_layernorm");
    const Tensor v = linear(x, name + "linear_qkv.v");
    std::vector<Tensor> segments;
    for (const AttentionSegment& segment : batch.text().attention()->segments) {
      const std::int64_t begin = segment.q_begin;
      const std::int64_t size = segment.q_len;
      const Tensor at = batch.text().positions().narrow(0, begin, size);
      const auto axes = batch.fields.find("position_axes");
      const Tensor on_axes =
          axes == batch.fields.end() ? Tensor() : axes->second.narrow(0, begin, size);
      std::vector<Tensor> heads;
      for (std::int64_t j = 0; j < c_.num_attention_heads; ++j) {
        const auto cut = [&](const Tensor& t, std::int64_t head) {
          return t.narrow(0, begin, size).narrow(1, head * d, d);
        };
        Tensor qj = cut(q, j);
        Tensor kj = cut(k, j / share);
        if ((c_.qk_layernorm && !norm_all) || c_.qk_l2_norm) {
          qj = head_norm(qj, name + "q_layernorm");
          kj = head_norm(kj, name + "k_layernorm");
        }
        if (rotates) {
          // A shift of queries and keys alike would change nothing.
          qj = rotate(qj, mistake_ == Mistake::kShiftedPositions ? at.add(1) : at, on_axes, layer);
          kj = rotate(kj, at, on_axes, layer);
        }
        heads.push_back(probabilities(qj.mm(kj.t()), name, j, layer).mm(cut(v, j / share)));
      }
      if (mistake_ == Mistake::kSwappedHeads) std::swap(heads[1], heads[2]);
      segments.push_back(tensor::cat(heads, 1));
    }
    Tensor mixed = rounded(tensor::cat(segments, 0));
    if (c_.attention_output_gate) {
      mixed = rounded(mixed.mul(linear(x, name + "linear_qkv.gate").sigmoid()));
    }
    return linear(mixed, name + "linear_proj");
  }

  config::ModelConfig c_;
  Tensors w_;
  Mistake mistake_;
  Rounding rounding_;
};

}  // namespace pentatron::test_support
