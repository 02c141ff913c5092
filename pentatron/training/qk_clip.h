// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"
#include "pentatron/nn/step_ledger.h"
#include "pentatron/optimizer/optimizer.h"

namespace pentatron::training {

// --qk-clip (Kimi Team, "Kimi K2", 2025, MuonClip; for query groups as Megatron has it): where the
// largest attention logit of a query group (of all its heads) in the step is above the threshold,
// eta = threshold / logit < 1, the query weights of the group are multiplied by eta^alpha and its
// key weights by eta^(1 - alpha). Biases stay. Logits are those of the whole global batch: of all
// micro-batches and ranks (StepLedger, after its reduction). Weights that are not trained stay as
// they are, and a skipped step changes none. Empty without --qk-clip. `ledger` outlives what is
// returned.
[[nodiscard]] optimizer::AfterUpdate qk_clip(const config::ModelConfig& model,
                                             const nn::StepLedger& ledger);

// Multiplies elements [begin, begin + n) of a row-major matrix of `columns` columns, `values` [n],
// by the factors of their rows, `factor` [rows of the matrix] on the device and in the dtype of the
// values.
void scale_rows(const Tensor& values, std::int64_t begin, std::int64_t columns,
                const Tensor& factor);

}  // namespace pentatron::training
