// SPDX-License-Identifier: Apache-2.0
// Shapes: t rows, c local channels; t1 a column.
#include "pentatron/parallel_layers/split_norm.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::parallel_layers {
namespace {

constexpr std::string_view kName = "SplitRmsNorm";

Tensor factors(const Tensor& weight_c, const SplitNormOptions& options) {
  const Tensor factors_c = tensor::cast(weight_c, options.statistics);
  return options.zero_centred ? factors_c.add(1.0) : factors_c;
}

// Sums over a row's channels on all ranks, [t, 1].
Tensor row_sums(comm::Group& group, const Tensor& x_tc) {
  Tensor sums_t1 = x_tc.sum({-1}, true).contiguous();
  comm::all_reduce(group, sums_t1);
  return sums_t1;
}

// With n = x rstd and g = dy weight: dx = rstd (g - n mean(g n)), the mean over all channels.
class SplitNormBackward final : public ops::Backward {
 public:
  SplitNormBackward(comm::Group& group, const Tensor& x_tc, Tensor rstd_t1, WeightRef& weight_c,
                    const SplitNormOptions& options, const ops::Scope& scope)
      : group_(group),
        x_(scope.save(x_tc, kName)),
        rstd_(rstd_t1),
        weight_(weight_c),
        options_(options),
        needs_dx_(x_tc.requires_grad()) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    PENTATRON_CHECK(output_grads.at(0).defined(), kInternal,
                    "{}: no gradient came, the other ranks would wait for this one", kName);
    const Tensor x_tc = x_.get(), rstd_t1 = rstd_.get();
    const Tensor dy_tc = tensor::cast(output_grads[0], options_.statistics);
    const Tensor normal_tc = tensor::cast(x_tc, options_.statistics).mul(rstd_t1);
    if (weight_.trainable()) write_grad(weight_, dy_tc.mul(normal_tc).sum(0));
    if (!needs_dx_) return {Tensor()};
    const Tensor g_tc = dy_tc.mul(factors(weight_.backward_weight(), options_));
    const Tensor mean_t1 =
        row_sums(group_, g_tc.mul(normal_tc)).div(static_cast<double>(options_.channels));
    return {tensor::cast(g_tc.sub(normal_tc.mul(mean_t1)).mul(rstd_t1), x_tc.scalar_type())};
  }
  void release() override {
    x_.release();
    rstd_.release();
  }
  std::string_view name() const override { return kName; }

 private:
  comm::Group& group_;
  Saved x_;
  Saved rstd_;
  WeightRef& weight_;
  SplitNormOptions options_;
  bool needs_dx_;
};

}  // namespace

Tensor split_rms_norm(comm::Group& group, const Tensor& x_tc, WeightRef& weight_c,
                      const SplitNormOptions& options, const ops::Scope& scope) {
  Tensor y_tc, rstd_t1;
  {
    const tensor::NoGrad no_grad;
    const Tensor weight = weight_c.forward_weight();
    PENTATRON_CHECK(x_tc.dim() == 2 && weight.dim() == 1 && weight.size(0) == x_tc.size(1) &&
                        options.channels >= x_tc.size(1),
                    kInternal,
                    "norm over ranks: input {} does not fit the weight {} and {} channels",
                    tensor::describe(x_tc), tensor::describe(weight), options.channels);
    const Tensor wide_tc = tensor::cast(x_tc, options.statistics);
    rstd_t1 = row_sums(group, wide_tc.mul(wide_tc))
                  .div(static_cast<double>(options.channels))
                  .add(options.epsilon)
                  .rsqrt();
    y_tc = tensor::cast(wide_tc.mul(rstd_t1).mul(factors(weight, options)), x_tc.scalar_type());
  }
  const bool learns = weight_c.trainable();
  if (!ops::needs_backward({x_tc}, learns)) return y_tc;
  auto backward = std::make_unique<SplitNormBackward>(group, x_tc, std::move(rstd_t1), weight_c,
                                                      options, scope);
  return ops::attach(std::move(y_tc), {x_tc}, std::move(backward), learns);
}

}  // namespace pentatron::parallel_layers
