// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/comm/group.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::training {

// The mean of micro-batches' means (--loss-mean micro-batches), as Megatron-LM trains on it without
// --calculate-per-token-loss:
//
//   objective = 1/M sum_m (sum of micro-batch m's token losses) / max(1, n_m)
//
// over the M micro-batches of all data- and context-parallel ranks, where n_m is the sum of the
// loss mask that a rank has of micro-batch m: under context parallelism of its own rows. Each token
// is weighed so that the mean over all N valid tokens, which the rest of the step computes, becomes
// that: by N / (M max(1, n_m)). A mean of means depends on how a batch is cut into micro-batches;
// it is the documented exception to "one loss in every layout".
class MeanWeights final {
 public:
  // `batches`: this rank's, on `device`, already cut. Collective over `replicas` (dp x cp); the
  // host does not wait.
  MeanWeights(const std::vector<Batch>& batches, comm::Group& replicas, Device device);

  // Multiplies the loss masks, in `dtype`; the batches given to the constructor.
  void apply(std::vector<Batch>& batches, DType dtype) const;
  // A sum of weighed token losses as it is without the weight: fp64 scalar.
  [[nodiscard]] Tensor without_weight(const Tensor& loss_sum, int micro_batch) const;

 private:
  std::vector<Tensor> counts_;  // max(1, n_m), fp64 scalars
  Tensor total_tokens_;         // N
  Tensor total_batches_;        // M
};

}  // namespace pentatron::training
