// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/precision.h"

#include "pentatron/base/error.h"

namespace pentatron {
namespace {

PrecisionPolicy uniform(DType dtype) {
  return {.parameter = dtype,
          .compute = dtype,
          .main_parameter = dtype,
          .main_grad = dtype,
          .reduction = dtype,
          .statistics = dtype,
          .logits = dtype,
          .loss = dtype,
          .state = dtype};
}

}  // namespace

PrecisionPolicy precision_policy(std::string_view name) {
  if (name == "fp32") return uniform(DType::Float);
  if (name == "fp64") return uniform(DType::Double);
  PrecisionPolicy policy = uniform(DType::Float);
  if (name == "fp16") {
    policy.parameter = DType::Half;
    policy.compute = DType::Half;
    return policy;
  }
  if (name == "bf16" || name == "bf16_state") {
    policy.parameter = DType::BFloat16;
    policy.compute = DType::BFloat16;
    policy.logits = DType::BFloat16;
  }
  if (name == "bf16_state") {
    policy.main_parameter = DType::BFloat16;
    policy.main_grad = DType::BFloat16;
    policy.reduction = DType::BFloat16;
    policy.state = DType::BFloat16;
  }
  PENTATRON_CHECK(policy.compute == DType::BFloat16, kConfig,
                  "unknown precision policy '{}'; known: fp32, bf16, fp16, fp64, bf16_state", name);
  return policy;
}

}  // namespace pentatron
