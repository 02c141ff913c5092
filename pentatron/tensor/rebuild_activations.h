// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "pentatron/tensor/activation_index.h"

namespace pentatron::tensor {

// Outputs of the named ops are not kept: the first op that wants one in backward has it made again
// from what its producer saved, bit for bit, and the others share that (Megatron-LM's recomputation
// of norms and activations, arXiv 2205.05198 section 5). All else is kept. Names are those of
// ops::Backward::name().
class RebuildActivations final : public SavePolicy {
 public:
  explicit RebuildActivations(std::vector<std::string> ops);
  [[nodiscard]] std::shared_ptr<SavedSlot> slot_for(const Tensor& activation,
                                                    const SaveSite& site) override;
  [[nodiscard]] bool wants_rebuild(const SaveSite& site) const override;
  void can_rebuild(const Tensor& output, Rebuild rebuild) override;
  // Activations that stand as a recipe now, and how often one was made again so far.
  [[nodiscard]] std::size_t num_waiting() const { return slots_.num_live(); }
  [[nodiscard]] std::int64_t num_rebuilt() const { return *num_rebuilt_; }

 private:
  struct Offer {
    ActivationKey key;
    Rebuild rebuild;
  };
  std::vector<std::string> ops_;
  std::deque<Offer> offers_;  // not yet taken; most are, by the very next op
  ActivationIndex slots_;
  std::shared_ptr<std::int64_t> num_rebuilt_ = std::make_shared<std::int64_t>(0);
};

}  // namespace pentatron::tensor
