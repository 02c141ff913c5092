// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_policy.h"

namespace pentatron::training {
namespace {

// Gradients that are accumulated in 16 bits travel in them too.
void keep_gradients_in(PrecisionPolicy& policy, DType dtype) {
  policy.main_grad = dtype;
  policy.reduction = dtype;
}

// What --megatron-fsdp-main-grads-dtype and -grad-comm-dtype name; fp32 is the name of the usual
// width, and auto leaves the choice to the other options.
void follow_fsdp(const config::ParallelConfig& parallel, PrecisionPolicy& policy) {
  if (parallel.megatron_fsdp_main_grads_dtype == "bf16") {
    keep_gradients_in(policy, precision_policy("bf16_state").main_grad);
  }
  if (parallel.megatron_fsdp_grad_comm_dtype == "bf16") {
    policy.reduction = precision_policy("bf16_state").reduction;
  } else if (parallel.megatron_fsdp_grad_comm_dtype == "fp32") {
    policy.reduction = precision_policy("fp32").reduction;
  }
}

}  // namespace

PrecisionPolicy run_policy(const config::RunConfig& config) {
  PrecisionPolicy policy = precision_policy(config.training.precision);
  const std::string& logits = config.model.logit_dtype;
  if (!logits.empty()) policy.logits = precision_policy(logits).compute;
  if (config.parallel.grad_reduce_in_bf16) {
    keep_gradients_in(policy, precision_policy("bf16_state").main_grad);
  }
  if (config.parallel.use_megatron_fsdp) follow_fsdp(config.parallel, policy);
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
