// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/adamw.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/weight_ref.h"

// The two faces of the ops. An op's file checks its arguments and joins the graph; the arithmetic
// is a function of one of these tables: tensors in, tensors out, no graph, no host read of a device
// tensor. All tensors of a call are on one device and, if not said otherwise, contiguous; work goes
// to the current stream of that device. Results do not depend on threads or on timing (but for the
// library's attention gradient on cards outside its deterministic mode).
namespace pentatron::ops {

struct NormInput {
  Tensor x_th;      // rows along the last dimension
  Tensor weight_h;  // any float dtype
  Tensor bias_h;    // undefined: RMS norm
  double eps = 0.0;
  DType statistics = DType::Float;
};
struct NormOutput {
  Tensor y_th;
  Tensor mean_t;  // undefined for RMS norm
  Tensor rstd_t;
};
struct NormGradInput {
  Tensor x_th, dy_th, weight_h;
  Tensor mean_t;  // undefined for RMS norm
  Tensor rstd_t;
  bool needs_dx = true;
  bool needs_weight_grads = true;
};
struct NormGradients {
  Tensor dx_th;               // undefined unless asked
  Tensor dweight_h, dbias_h;  // in the dtype of rstd_t; undefined unless asked, dbias also for RMS
};

struct DropoutKey {
  double p = 0.0;
  RngSite site = {};
  std::int64_t channel_begin = 0;
};

struct OpTable {
  NormOutput (*norm_forward)(const NormInput& in);
  NormGradients (*norm_backward)(const NormGradInput& in);

  Tensor (*gelu_forward)(const Tensor& x);
  Tensor (*gelu_backward)(const Tensor& x, const Tensor& dy);
  Tensor (*swiglu_forward)(const Tensor& x_t2f);
  Tensor (*swiglu_backward)(const Tensor& x_t2f, const Tensor& dy_tf);
  // Also its own gradient.
  Tensor (*dropout)(const Tensor& x_th, const DropoutKey& key, const Tensor& sample_ids_t,
                    const Tensor& token_index_t);
  // x [t, n, d] with any stride of tokens and heads; cos and sin [positions, rotary_dim / 2];
  // direction -1: the gradient. A position outside the table is refused on the CPU and gives NaN on
  // cards, which the host cannot see: whoever makes batches checks them (check_positions).
  Tensor (*rotate)(const Tensor& x_tnd, const Tensor& cos_pr, const Tensor& sin_pr,
                   const Tensor& positions_t, double direction);

  Tensor (*embedding_forward)(const Tensor& ids_t, const Tensor& table_vh, std::int64_t row_begin,
                              std::int64_t rows);
  // dy undefined: no gradient came, the slot is still written.
  void (*embedding_backward)(const Tensor& ids_t, const Tensor& dy_th, std::int64_t row_begin,
                             std::int64_t rows, const GradSlot& slot);
  // Sums over rows into a [columns] slot.
  void (*column_sums)(const Tensor& dy_to, const GradSlot& slot);

  // As in cross_entropy.h.
  Tensor (*row_max)(const Tensor& logits_tv, std::int64_t valid_columns, DType statistics);
  SoftmaxPieces (*softmax_pieces)(const Tensor& logits_tv, const Tensor& labels_t,
                                  const Tensor& row_max_t, std::int64_t column_begin,
                                  std::int64_t valid_columns);
  void (*softmax_gradient_)(const Tensor& logits_tv, const Tensor& labels_t,
                            const Tensor& log_sum_exp_t, const Tensor& coefficient_t,
                            std::int64_t column_begin, std::int64_t valid_columns);

  // q, k, v of any stride, in one dtype.
  AttentionOutput (*attention_forward)(const AttentionPlan& plan, const Tensor& q_tnd,
                                       const Tensor& k_tgd, const Tensor& v_tgd);
  AttentionGradients (*attention_backward)(const AttentionPlan& plan, const Tensor& q_tnd,
                                           const Tensor& k_tgd, const Tensor& v_tgd,
                                           const AttentionOutput& output, const Tensor& dout_tnd);

  // As in adamw.h.
  void (*adamw_step)(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
                     const Tensor& exp_avg_sq, const AdamScalars& scalars,
                     const AdamOptions& options);
  void (*sgd_step)(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
                   const AdamScalars& scalars, double momentum, double weight_decay);
  // An fp64 scalar on the tensor's device.
  Tensor (*sum_of_squares)(const Tensor& flat);
};

// The table of a device's type. kUnsupported for CUDA before its half is loaded.
[[nodiscard]] const OpTable& op_table(Device device);
// Called once, when the CUDA half is loaded, before rank threads start; `table` lives as long as
// the process.
void register_cuda_op_table(const OpTable& table);

}  // namespace pentatron::ops
