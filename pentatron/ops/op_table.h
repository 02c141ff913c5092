// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/base/activation_kind.h"
#include "pentatron/ops/adamw.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/ops/distillation.h"
#include "pentatron/ops/products.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/weight_ref.h"

// The CPU and CUDA implementations of the ops. An op's file checks its arguments and joins the
// graph; the arithmetic is a function of one of these tables: tensors in, tensors out, no graph, no
// host read of a device tensor. Which functions there are, and what each does, is written once, in
// op_functions.inc: with a function missing the CUDA library does not link and the program does not
// load. All tensors of a call are on one device and, if not said otherwise, contiguous; work goes
// to the current stream of that device. Results do not depend on threads or on timing (but for the
// library's attention gradient on GPUs outside its deterministic mode). Arithmetic on other dtypes
// than fp32, bf16, fp16 and fp64 is kUnsupported.
namespace pentatron::ops {

struct NormInput {
  Tensor x_th;           // rows along the last dimension
  Tensor delta_th = {};  // like x; added to it first, rounded to x's dtype. Undefined: none
  Tensor weight_h;       // any float dtype
  Tensor bias_h;         // undefined: RMS norm
  double eps = 0.0;
  DType statistics = DType::Float;
  bool largest = false;  // of y, to be noted with it (wants_largest)
};
struct NormOutput {
  Tensor y_th;
  Tensor mean_t;  // undefined for RMS norm
  Tensor rstd_t;
  Tensor sum_th = {};  // x + delta; undefined without delta
};
struct NormGradInput {
  Tensor x_th, dy_th, weight_h;  // x: what was normalised
  Tensor mean_t;                 // undefined for RMS norm
  Tensor rstd_t;
  bool needs_dx = true;
  bool needs_weight_grads = true;
  // Another gradient of x, in its dtype, added to dx before it is rounded. Undefined: none
  Tensor dsum_th = {};
};
struct NormGradients {
  Tensor dx_th;               // undefined unless asked
  Tensor dweight_h, dbias_h;  // in the dtype of rstd_t; undefined unless asked, dbias also for RMS
};

struct ActivationGradient {
  Tensor dx_to;
  Tensor partials_po;  // sums of dx; undefined where column_sums is to make them
};

struct DropoutKey {
  double p = 0.0;
  RngSite site = {};
  std::int64_t channel_begin = 0;
};

// A pointer for each function of the list: op_table(device).norm_forward(in).
struct OpTable {
// NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration, no values
#define PENTATRON_OP(result, name, arguments) result(*name) arguments;
#include "pentatron/ops/op_functions.inc"
};

// The table of a device's type. kUnsupported for CUDA before the CUDA library is loaded.
[[nodiscard]] const OpTable& op_table(Device device);
// Called once, when the CUDA library is loaded, before rank threads start; `table` lives as long as
// the process.
void register_cuda_op_table(const OpTable& table);

}  // namespace pentatron::ops
