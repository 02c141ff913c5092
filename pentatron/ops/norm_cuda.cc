// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/norm.h"

#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/known_largest.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

using tensor::read;
using tensor::write;

kernels::NormArguments arguments_of(const Tensor& x_th, const Tensor& weight_h) {
  return {.type = tensor::kernel_type(x_th.scalar_type()),
          .weight_computing = weight_h.scalar_type() != x_th.scalar_type(),
          .rows = x_th.numel() / x_th.size(-1),
          .columns = x_th.size(-1),
          .x = read(x_th),
          .weight = read(weight_h)};
}

}  // namespace

NormOutput cuda::norm_forward(const NormInput& in) {
  const Tensor& x = in.x_th;
  const DType computed = device_compute_dtype(x.scalar_type(), in.statistics);
  // Weights are read as they are stored where that is the dtype of x.
  const bool direct = in.weight_h.scalar_type() == x.scalar_type() &&
                      (!in.bias_h.defined() || in.bias_h.scalar_type() == x.scalar_type());
  const Tensor weight = direct ? in.weight_h : in.weight_h.to(computed);
  const Tensor bias = direct || !in.bias_h.defined() ? in.bias_h : in.bias_h.to(computed);
  kernels::NormArguments arguments = arguments_of(x, weight);
  arguments.weight_computing = !direct;
  NormOutput out;
  if (in.delta_th.defined()) {
    out.sum_th = tensor::empty(x.sizes(), x.scalar_type(), x.device());
    arguments.delta = read(in.delta_th);
    arguments.sum = write(out.sum_th);
  }
  out.y_th = tensor::empty(x.sizes(), x.scalar_type(), x.device());
  const Tensor largest = tensor::place_of_largest(in.largest, out.y_th);
  arguments.largest = static_cast<float*>(write(largest));
  out.rstd_t = tensor::empty({arguments.rows}, computed, x.device());
  if (bias.defined()) out.mean_t = tensor::empty({arguments.rows}, computed, x.device());
  tensor::check_launch(
      kernels::norm_forward(arguments, read(bias), in.eps, write(out.y_th), write(out.mean_t),
                            write(out.rstd_t), tensor::stream_of(x)),
      "norm_forward");
  tensor::note_largest(out.y_th, largest);
  return out;
}

NormGradients cuda::norm_backward(const NormGradInput& in) {
  const Tensor& x = in.x_th;
  const DType computed = in.rstd_t.scalar_type();
  const Tensor weight =
      in.weight_h.scalar_type() == x.scalar_type() ? in.weight_h : in.weight_h.to(computed);
  kernels::NormArguments arguments = arguments_of(x, weight);
  arguments.delta = read(in.dsum_th);
  NormGradients out;
  if (in.needs_dx) out.dx_th = tensor::empty(x.sizes(), x.scalar_type(), x.device());
  Tensor partials;
  if (in.needs_weight_grads) {
    out.dweight_h = tensor::empty({arguments.columns}, computed, x.device());
    if (in.mean_t.defined()) {
      out.dbias_h = tensor::empty({arguments.columns}, computed, x.device());
    }
    partials = tensor::empty(
        {2 * kernels::norm_partials(arguments.rows, arguments.columns) * arguments.columns},
        computed, x.device());
  }
  tensor::check_launch(
      kernels::norm_backward(arguments, read(in.dy_th), read(in.mean_t), read(in.rstd_t),
                             write(out.dx_th), write(out.dweight_h), write(out.dbias_h),
                             write(partials), tensor::stream_of(x)),
      "norm_backward");
  return out;
}

}  // namespace pentatron::ops
