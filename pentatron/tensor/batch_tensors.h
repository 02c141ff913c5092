// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/tensor/batch.h"

// The memory of a batch on a device, for steps that are recorded once and replayed with other
// values in it (device_queue.h StepGraph).
namespace pentatron {

// Everything of the batch that kernels read, in an order that batches of one shape share: rows,
// attention boundaries and the plans of a rank's share (sequence_cut.h) of each sequence, then the
// fields. Undefined tensors are left out; one that is used twice stands there twice.
[[nodiscard]] std::vector<Tensor> tensors_of(const Batch& batch);

// The values of `from` into the memory of `to`, both of one shape; the host does not wait where
// they lie on one device. Other numbers or shapes of tensors: kInternal.
void copy_tensors(const Batch& to, const Batch& from);

}  // namespace pentatron
