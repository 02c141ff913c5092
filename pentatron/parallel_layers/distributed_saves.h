// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::parallel_layers {

// Activations that all tensor-parallel ranks have alike are kept in equal slices, one a rank, and
// gathered where backward wants them (--distribute-saved-activations; Megatron-LM, arXiv
// 2205.05198, section 5). A slice is a range of the elements, the last ones filled up with zeros.
// Saving and asking are collective: all ranks of the group do both in the same order. Gathered
// values have the bits that were saved.
class DistributedSaves final : public SavePolicy {
 public:
  // The context's groups outlive what is saved.
  explicit DistributedSaves(const LeafContext& context);
  [[nodiscard]] std::shared_ptr<SavedSlot> slot_for(const Tensor& activation,
                                                    const SaveSite& site) override;

 private:
  comm::Group& group_;
};

}  // namespace pentatron::parallel_layers
