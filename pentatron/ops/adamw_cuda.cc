// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/kernels/optimizer.h"
#include "pentatron/kernels/reduce.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/step_scalars_cuda.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

using tensor::check_launch;
using tensor::read;
using tensor::stream_of;

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
      slices_.push_back(cuda::flat_slice(s, with_first));
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
  check_launch(kernels::adamw_step(slices.all(), step_scalars(scalars, slices.like()),
                                   adam_config(options), stream_of(slices.like())),
               "adamw_step");
}

void cuda::sgd_step(UpdateSegments segments, const AdamScalars& scalars, double momentum,
                    double weight_decay) {
  PENTATRON_CHECK(scalars.lr.defined(), kInternal, "sgd: the learning rate is not given");
  const Slices slices(segments, /*with_first=*/momentum != 0.0);
  check_launch(kernels::sgd_step(slices.all(), step_scalars(scalars, slices.like()), momentum,
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
