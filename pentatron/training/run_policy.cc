// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_policy.h"

namespace pentatron::training {
namespace {

// Gradients that are accumulated in 16 bits travel in them too.
void keep_gradients_in(PrecisionPolicy& policy, DType dtype) {
  policy.main_grad = dtype;
  policy.reduction = dtype;
}

}  // namespace

PrecisionPolicy run_policy(const config::RunConfig& config) {
  PrecisionPolicy policy = precision_policy(config.training.precision);
  const std::string& logits = config.model.logit_dtype;
  if (!logits.empty()) policy.logits = precision_policy(logits).compute;
  if (config.parallel.grad_reduce_in_bf16) {
    keep_gradients_in(policy, precision_policy("bf16_state").main_grad);
  }
  const config::OptimizerConfig& optimizer = config.optimizer;
  if (!optimizer.use_precision_aware_optimizer) return policy;
  // fp32 is the name of the usual width, whatever the precision.
  if (optimizer.main_grads_dtype != "fp32") {
    keep_gradients_in(policy, tensor::parse_dtype(optimizer.main_grads_dtype));
  }
  if (optimizer.main_params_dtype != "fp32") {
    policy.main_parameter = tensor::parse_dtype(optimizer.main_params_dtype);
  }
  return policy;
}

}  // namespace pentatron::training
