// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/step_records.h"

#include <utility>

#include "pentatron/ops/backward.h"

namespace pentatron::parallel_layers {
namespace {

class JoinedLossBackward final : public ops::Backward {
 public:
  explicit JoinedLossBackward(Tensor seed) : seed_(std::move(seed)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    return {std::move(output_grads.at(0)), std::move(seed_)};
  }
  void release() override { seed_ = Tensor(); }
  std::string_view name() const override { return "joined_loss"; }

 private:
  Tensor seed_;
};

}  // namespace

nn::Share share_of_rows(const LeafContext& context) {
  const bool own = context.layout().sequence_parallel || context.size("tp") == 1;
  return own ? nn::Share::kOwn : nn::Share::kTensorCopy;
}

Tensor join_loss(const LeafContext& context, const Tensor& x, const std::string& name,
                 const Tensor& loss_sum, nn::StepContext& step) {
  step.add_sum(name, loss_sum, share_of_rows(context));
  if (step.ledger == nullptr || !ops::needs_backward({loss_sum})) return x;
  return ops::attach(
      x.variable_data(), {x, loss_sum},
      std::make_unique<JoinedLossBackward>(step.ledger->seed_of(name).to(loss_sum.scalar_type())));
}

}  // namespace pentatron::parallel_layers
