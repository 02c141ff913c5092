// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/error.h"
#include "pentatron/kernels/optimizer.h"
#include "pentatron/kernels/reduce.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

using tensor::check_launch;
using tensor::read;
using tensor::stream_of;
using tensor::write;

// Undefined: null.
const double* scalar_at(const Tensor& scalar, const Tensor& param) {
  if (!scalar.defined()) return nullptr;
  PENTATRON_CHECK(scalar.device() == param.device() && scalar.numel() == 1, kInternal,
                  "optimizer step: the scalar {} is not on {}", tensor::describe(scalar),
                  param.device().str());
  return scalar.const_data_ptr<double>();
}

kernels::StepScalars scalars_at(const AdamScalars& scalars, const Tensor& param) {
  return {.lr = scalar_at(scalars.lr, param),
          .step = scalar_at(scalars.step, param),
          .grad_scale = scalar_at(scalars.grad_scale, param),
          .weight_decay = scalar_at(scalars.weight_decay, param),
          .skip = scalar_at(scalars.skip, param)};
}

kernels::FlatSlices slices_of(const Tensor& param, const Tensor& grad) {
  const DType computed = compute_dtype(param.scalar_type());
  PENTATRON_CHECK(param.scalar_type() == computed, kUnsupported,
                  "optimizer steps are for fp32 and fp64 parameters, got {}",
                  tensor::describe(param));
  const kernels::Type type = tensor::kernel_type(computed);
  return {.wide = type == kernels::Type::kDouble,
          .grad_type = tensor::kernel_type(grad.scalar_type()),
          .count = param.numel(),
          .param = write(param),
          .grad = read(grad)};
}

}  // namespace

void cuda::adamw_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
                      const Tensor& exp_avg_sq, const AdamScalars& scalars,
                      const AdamOptions& options) {
  PENTATRON_CHECK(scalars.lr.defined() && scalars.step.defined() &&
                      exp_avg.scalar_type() == param.scalar_type() &&
                      exp_avg_sq.scalar_type() == param.scalar_type(),
                  kInternal, "adamw: moments {} and {} for {}", tensor::describe(exp_avg),
                  tensor::describe(exp_avg_sq), tensor::describe(param));
  check_launch(kernels::adamw_step(slices_of(param, grad), write(exp_avg), write(exp_avg_sq),
                                   scalars_at(scalars, param),
                                   {.beta1 = options.beta1,
                                    .beta2 = options.beta2,
                                    .eps = options.eps,
                                    .weight_decay = options.weight_decay},
                                   stream_of(param)),
               "adamw_step");
}

void cuda::sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
                    const AdamScalars& scalars, double momentum, double weight_decay) {
  PENTATRON_CHECK(scalars.lr.defined() &&
                      (momentum == 0.0 || momentum_buffer.scalar_type() == param.scalar_type()),
                  kInternal, "sgd: momentum buffer {} for {}", tensor::describe(momentum_buffer),
                  tensor::describe(param));
  check_launch(
      kernels::sgd_step(slices_of(param, grad), momentum == 0.0 ? nullptr : write(momentum_buffer),
                        scalars_at(scalars, param), momentum, weight_decay, stream_of(param)),
      "sgd_step");
}

void cuda::add_squares(const Tensor& flat, const Tensor& sum) {
  const Tensor partials =
      tensor::empty({kernels::kSquarePartials}, kAccumulationDType, flat.device());
  const Tensor squares = tensor::empty({}, kAccumulationDType, flat.device());
  check_launch(kernels::sum_of_squares(tensor::kernel_type(flat.scalar_type()), read(flat),
                                       flat.numel(), partials.data_ptr<double>(),
                                       squares.data_ptr<double>(), stream_of(flat)),
               "sum_of_squares");
  sum.add_(squares);
}

}  // namespace pentatron::ops
