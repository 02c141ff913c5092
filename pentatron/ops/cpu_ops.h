// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/op_table.h"

// The CPU's side of the op table: the readable reference. What each function does stands in
// op_table.h.
namespace pentatron::ops::cpu {

[[nodiscard]] NormOutput norm_forward(const NormInput& in);
[[nodiscard]] NormGradients norm_backward(const NormGradInput& in);
[[nodiscard]] Tensor gelu_forward(const Tensor& x);
[[nodiscard]] Tensor gelu_backward(const Tensor& x, const Tensor& dy);
[[nodiscard]] Tensor swiglu_forward(const Tensor& x_t2f);
[[nodiscard]] Tensor swiglu_backward(const Tensor& x_t2f, const Tensor& dy_tf);
[[nodiscard]] Tensor dropout(const Tensor& x_th, const DropoutKey& key, const Tensor& sample_ids_t,
                             const Tensor& token_index_t);
[[nodiscard]] Tensor rotate(const Tensor& x_tnd, const Tensor& cos_pr, const Tensor& sin_pr,
                            const Tensor& positions_t, double direction);
[[nodiscard]] Tensor embedding_forward(const Tensor& ids_t, const Tensor& table_vh,
                                       std::int64_t row_begin, std::int64_t rows);
void embedding_backward(const Tensor& ids_t, const Tensor& dy_th, std::int64_t row_begin,
                        std::int64_t rows, const GradSlot& slot);
void column_sums(const Tensor& dy_to, const GradSlot& slot);
[[nodiscard]] Tensor row_max(const Tensor& logits_tv, std::int64_t valid_columns, DType statistics);
[[nodiscard]] SoftmaxPieces softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                                           const Tensor& row_max_t, std::int64_t column_begin,
                                           std::int64_t valid_columns);
void softmax_gradient_(const Tensor& logits_tv, const Tensor& labels_t, const Tensor& log_sum_exp_t,
                       const Tensor& coefficient_t, std::int64_t column_begin,
                       std::int64_t valid_columns);
[[nodiscard]] AttentionOutput attention_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                                const Tensor& k_tgd, const Tensor& v_tgd);
[[nodiscard]] AttentionGradients attention_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                                    const Tensor& k_tgd, const Tensor& v_tgd,
                                                    const AttentionOutput& output,
                                                    const Tensor& dout_tnd);
void adamw_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
                const Tensor& exp_avg_sq, const AdamScalars& scalars, const AdamOptions& options);
void sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
              const AdamScalars& scalars, double momentum, double weight_decay);

[[nodiscard]] Tensor sum_of_squares(const Tensor& flat);

}  // namespace pentatron::ops::cpu
