// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/nn/module.h"
#include "pentatron/nn/step_ledger.h"

namespace pentatron::training {

// The ledger of a model that lies on the ranks of the context: what the modules of any rank declare
// (of those on request what is `asked` for), and `results`, in one order on all ranks. Collective
// over the world. Ranks that declare one name differently: kInternal.
[[nodiscard]] std::unique_ptr<nn::StepLedger> make_ledger(const nn::Module& model,
                                                          comm::ParallelContext& context,
                                                          const std::vector<std::string>& asked,
                                                          std::vector<nn::LedgerEntry> results,
                                                          DType loss_dtype, Device device);

}  // namespace pentatron::training
