// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/delayed_scales.h"

#include <cmath>
#include <memory>

#include "pentatron/base/error.h"
#include "pentatron/nn/optional_state.h"
#include "pentatron/parallel_layers/tensor_layout.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {
namespace {

constexpr std::int64_t kKinds = 2;  // inputs, output gradients

const DelayedScaling& scaling_of(const LeafContext& context) {
  PENTATRON_CHECK(context.delayed_scaling().has_value(), kInternal,
                  "delayed scales without their options");
  return *context.delayed_scaling();
}

}  // namespace

DelayedScales::DelayedScales(const LeafContext& context, const std::string& name)
    : options_(scaling_of(context)), scalar_(name + ".fp8_largest") {
  const std::string history = name + std::string(nn::kFp8History);
  history_ = &add_buffer(std::make_unique<nn::Buffer>(
      history,
      lay_out({{.name = history, .rows = kKinds, .columns = 1 + options_.steps}}, context.layout()),
      DType::Float, context.device()));
  declare_scalar({.name = scalar_, .kind = nn::ScalarKind::kMax, .size = kKinds});
}

ops::Recipe DelayedScales::applied(ops::Recipe recipe, const nn::StepContext& step) const {
  if (recipe.numbers != Numbers::kFp8) return recipe;
  // In recompute too, unlike other numbers: the gradients are those of what is run again, and a
  // maximum may be told twice.
  const Tensor seen = step.ledger != nullptr ? step.ledger->max_slot(scalar_) : Tensor();
  const auto of = [&](std::int64_t kind) {
    return ops::Fp8History{.known = history_->data().select(0, kind).select(0, 0),
                           .seen = seen.defined() ? seen.select(0, kind) : Tensor()};
  };
  recipe.input = of(0);
  recipe.output_gradient = of(1);
  return recipe;
}

void DelayedScales::commit_own(const nn::StepOutcome& outcome) {
  const tensor::NoGrad no_grad;
  const Tensor& history = history_->data();
  // Kinds that no row passed through have seen -infinity: nothing.
  const Tensor latest =
      outcome.max_of(scalar_).clamp_min(0.0).to(history.scalar_type()).unsqueeze(1);
  const Tensor seen = tensor::cat({latest, history.narrow(1, 1, options_.steps - 1)}, 1);
  const Tensor counts = options_.largest ? seen.amax(IntList{1}, /*keepdim=*/true) : latest;
  const double margin = std::exp2(static_cast<double>(options_.margin));
  outcome.update(history, tensor::cat({counts.mul(margin), seen}, 1));
}

}  // namespace pentatron::parallel_layers
