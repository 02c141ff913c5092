// SPDX-License-Identifier: Apache-2.0
#include <vector>

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
  static_assert(kernels::kNumRates == kNumRateClasses);
  const std::array<Tensor, kNumRateClasses> rates = rates_of(scalars);
  return {
      .rates = {scalar_at(rates[0], param), scalar_at(rates[1], param), scalar_at(rates[2], param)},
      .step = scalar_at(scalars.step, param),
      .grad_scale = scalar_at(scalars.grad_scale, param),
      .weight_decay = scalar_at(scalars.weight_decay, param),
      .skip = scalar_at(scalars.skip, param)};
}

// What the launcher takes; moments have the parameter's dtype.
class Slices {
 public:
  Slices(UpdateSegments segments, bool with_first) : like_(segments[0].param) {
    const DType computed = compute_dtype(like_.scalar_type());
    PENTATRON_CHECK(like_.scalar_type() == computed, kUnsupported,
                    "optimizer steps are for fp32 and fp64 parameters, got {}",
                    tensor::describe(like_));
    slices_.reserve(segments.size());
    for (const UpdateSegment& s : segments) {
      for (const Tensor& moment : {s.first, s.second}) {
        PENTATRON_CHECK(!moment.defined() || moment.scalar_type() == computed, kInternal,
                        "optimizer step: state {} for {}", tensor::describe(moment),
                        tensor::describe(s.param));
      }
      slices_.push_back({.param = write(s.param),
                         .grad = read(s.grad),
                         .first = with_first ? write(s.first) : nullptr,
                         .second = write(s.second),
                         .count = s.param.numel(),
                         .eps_factor = s.eps_factor,
                         .rate = static_cast<std::int32_t>(s.rate),
                         .decays = s.decays});
    }
    all_ = {.wide = tensor::kernel_type(computed) == kernels::Type::kDouble,
            .grad_type = tensor::kernel_type(segments[0].grad.scalar_type()),
            .slices = slices_.data(),
            .num_slices = slices_.size()};
  }
  [[nodiscard]] const kernels::FlatSlices& all() const { return all_; }
  [[nodiscard]] const Tensor& like() const { return like_; }

 private:
  Tensor like_;
  std::vector<kernels::FlatSlice> slices_;
  kernels::FlatSlices all_{};
};

}  // namespace

void cuda::adamw_step(UpdateSegments segments, const AdamScalars& scalars,
                      const AdamOptions& options) {
  PENTATRON_CHECK(scalars.lr.defined() && scalars.step.defined(), kInternal,
                  "adamw: learning rate and step count are not given");
  const Slices slices(segments, /*with_first=*/true);
  check_launch(kernels::adamw_step(slices.all(), scalars_at(scalars, slices.like()),
                                   {.beta1 = options.beta1,
                                    .beta2 = options.beta2,
                                    .eps = options.eps,
                                    .weight_decay = options.weight_decay},
                                   stream_of(slices.like())),
               "adamw_step");
}

void cuda::sgd_step(UpdateSegments segments, const AdamScalars& scalars, double momentum,
                    double weight_decay) {
  PENTATRON_CHECK(scalars.lr.defined(), kInternal, "sgd: the learning rate is not given");
  const Slices slices(segments, /*with_first=*/momentum != 0.0);
  check_launch(kernels::sgd_step(slices.all(), scalars_at(scalars, slices.like()), momentum,
                                 weight_decay, stream_of(slices.like())),
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
