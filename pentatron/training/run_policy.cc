// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_policy.h"

namespace pentatron::training {

PrecisionPolicy run_policy(const config::RunConfig& config) {
  PrecisionPolicy policy = precision_policy(config.training.precision);
  const std::string& logits = config.model.logit_dtype;
  if (!logits.empty()) policy.logits = precision_policy(logits).compute;
  return policy;
}

}  // namespace pentatron::training
