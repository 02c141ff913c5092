// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/context_comm.h"
#include "pentatron/nn/module.h"
#include "pentatron/parallel_layers/column_linear.h"

namespace pentatron::parallel_layers {

class RelativePosition;

// Largest scaled logit of any query and a key that it sees (--log-max-attention-logit).
inline constexpr const char* kMaxAttentionLogit = "max attention logit";
// Likewise of each query head of the model (a vector, for --qk-clip), in the attention `name`.
[[nodiscard]] std::string max_logits_of(const std::string& name);

// How the softmax of a CoreAttention treats its sink (ops::AttentionOptions::sink_n).
enum class Sink {
  kNone,
  kZero,     // a logit of 0
  kLearned,  // a parameter for each query head
};

// softmax(scale q k^T) v over this rank's heads and all rows of one of the batch's sequences:
// three tensors of heads -> [rows, local heads * d], inside the sequence's segments. Rows that are
// a context-parallel rank's share (SequenceLayout::cut) see the keys of the other ranks too. With a
// cache in the step (prefill, decode) keys and values are appended to it and all of them are seen.
class CoreAttention final : public nn::Module {
 public:
  struct Options {
    std::int64_t head_dim = 0;
    bool causal = true;
    // Scores fall with distance (ALiBi); the slopes are those of the model's query heads.
    bool alibi = false;
    double alibi_scale = 1.0;    // ops::AttentionOptions
    bool alibi_in_bf16 = false;  // ops::AttentionOptions
    // Scores have learned biases by distance; it outlives the attention. Null: none.
    const RelativePosition* relative = nullptr;
    double scale = 0.0;        // 0: 1 / sqrt(head_dim)
    std::int64_t window = -1;  // ops::AttentionOptions
    double softcap = 0.0;      // ops::AttentionOptions
    Sink sink = Sink::kNone;
    // Of the batch; one made by SequenceLayout::with_keys attends to another sequence's keys.
    std::string sequence{Batch::kText};
    bool tells_each_head = false;  // max_logits_of() in training steps
    double dropout = 0.0;
    std::string site;              // global name of the dropout site
    std::int64_t cache_layer = 0;  // number of the layer among those of this rank
    // How rows that are a share see the keys of the other ranks.
    config::ContextComm context_comm = config::ContextComm::kP2p;
  };
  // `qkv` tells which heads stand on this rank; its first parts are q, or q, k, v. The weights of a
  // learned sink are planned as `name`.softmax_offset. Channels that are no whole heads: kConfig.
  CoreAttention(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
                const ColumnLinear& qkv, Options options);

  // q [rows, local q heads, d]; k, v [rows of the keys, local kv heads, d], values with the same d
  // or another.
  [[nodiscard]] Tensor forward(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                               nn::StepContext& step);

 private:
  void declare_logits(const ColumnLinear& qkv);
  [[nodiscard]] Tensor sink(const nn::StepContext& step) const;
  // Where this rank's heads raise max_logits_of(); undefined: nowhere.
  [[nodiscard]] Tensor head_logits(const nn::StepContext& step) const;

  LeafContext context_;
  Options options_;
  std::int64_t head_begin_;
  std::int64_t own_heads_;
  std::string max_logits_;                 // empty: not told
  Tensor alibi_n_;                         // of this rank's query heads; undefined: none
  Tensor zero_sink_n_;                     // likewise
  nn::Parameter* learned_sink_ = nullptr;  // null: none
};

}  // namespace pentatron::parallel_layers
