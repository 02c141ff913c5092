// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/attention_kernel.h"
#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

namespace pentatron::ops {
namespace {

// In the computing dtype, channels side by side; strides of tokens and heads may be any (a part of
// a fused qkv is not copied).
Tensor prepared(const Tensor& x_tnd, DType computed) {
  const Tensor x = tensor::cast(x_tnd, computed);
  const bool rows_apart = x.size(0) <= 1 || x.stride(0) >= x.size(2);  // not so after expand()
  return rows_apart && (x.size(2) <= 1 || x.stride(2) == 1) ? x : x.contiguous();
}

}  // namespace

AttentionOutput cpu::attention_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                       const Tensor& k_tgd, const Tensor& v_tgd) {
  const DType computed = compute_dtype(q_tnd.scalar_type(), plan.options.statistics);
  Tensor out = tensor::empty({q_tnd.size(0), q_tnd.size(1), v_tgd.size(2)}, computed);
  Tensor lse = tensor::empty({q_tnd.size(1), q_tnd.size(0)}, computed);
  blocked_attention_forward(plan, prepared(q_tnd, computed), prepared(k_tgd, computed),
                            prepared(v_tgd, computed), out, lse);
  const DType dtype = plan.options.partial ? computed : q_tnd.scalar_type();
  return {.out_tnd = tensor::cast(out, dtype), .lse_nt = lse, .library = {}};
}

AttentionGradients cpu::attention_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                           const Tensor& k_tgd, const Tensor& v_tgd,
                                           const AttentionOutput& output, const Tensor& dout_tnd) {
  const DType computed = output.lse_nt.scalar_type();
  const DType dtype = plan.options.partial ? computed : q_tnd.scalar_type();
  const Tensor q = prepared(q_tnd, computed), k = prepared(k_tgd, computed);
  const Tensor v = prepared(v_tgd, computed);
  // Side by side, as the fused projection that they usually come from holds them.
  const std::int64_t n = q.size(1), g = k.size(1);
  const bool one_matrix = q.size(0) == k.size(0) && q.size(2) == v.size(2) && dtype == computed;
  // The segments leave no row out, so all is written.
  const Tensor all = tensor::empty({one_matrix ? q.size(0) : 0, n + 2 * g, q.size(2)}, computed);
  const auto part = [&](const Tensor& like, std::int64_t begin) {
    return one_matrix ? tensor::narrowed(all, 1, begin, like.size(1))
                      : tensor::empty(like.sizes(), computed);
  };
  const Tensor dq = part(q, 0), dk = part(k, n), dv = part(v, n + g);
  const Tensor& bias_nd = plan.options.bias_nd;
  const Tensor dbias =
      bias_nd.defined() ? tensor::zeros(bias_nd.sizes(), kAccumulationDType) : Tensor();
  blocked_attention_backward(plan, q, k, v, prepared(output.out_tnd, computed), output.lse_nt,
                             prepared(dout_tnd, computed), dq, dk, dv, dbias);
  return {.dq_tnd = tensor::cast(dq, dtype),
          .dk_tgd = tensor::cast(dk, dtype),
          .dv_tgd = tensor::cast(dv, dtype),
          .dsink_n = {},
          .dbias_nd = bias_nd.defined() ? dbias.to(bias_nd.scalar_type()) : Tensor()};
}

}  // namespace pentatron::ops
