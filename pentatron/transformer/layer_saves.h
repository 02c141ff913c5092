// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "pentatron/nn/step_context.h"
#include "pentatron/tensor/offload_activations.h"
#include "pentatron/tensor/rebuild_activations.h"
#include "pentatron/transformer/offload_plan.h"

namespace pentatron::transformer {

// What becomes of the activations of one layer: kept, made again (outputs of norms), in host memory
// (of some parts), or both of the latter.
class LayerSaves final {
 public:
  // `host`: of the stage, null: nothing waits in host memory. Of the layer's parts `plan` says
  // which; `layer`: its place in the stage.
  LayerSaves(const config::ModelConfig& config, tensor::OffloadActivations* host,
             const OffloadPlan& plan, int layer);
  ~LayerSaves();
  LayerSaves(const LayerSaves&) = delete;
  LayerSaves& operator=(const LayerSaves&) = delete;

  // Sets the policy of the step's scope while it lives.
  class Scope final {
   public:
    Scope(nn::StepContext& step, SavePolicy* policy)
        : step_(step), before_(std::exchange(step.scope.saves, policy)) {}
    ~Scope() { step_.scope.saves = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    nn::StepContext& step_;
    SavePolicy* before_;
  };
  // Around the layer, and around a part in it. What backward makes again does not leave the device:
  // it is wanted at once.
  [[nodiscard]] Scope around(nn::StepContext& step) const;
  [[nodiscard]] Scope around(nn::StepContext& step, OffloadedModule part) const;

 private:
  // Rebuilt where its producer is a norm, else as the second says.
  class Either;

  [[nodiscard]] SavePolicy* policy(const nn::StepContext& step, bool offloaded) const;

  std::unique_ptr<tensor::RebuildActivations> norms_;  // null: their outputs are kept
  tensor::OffloadActivations* host_;
  std::vector<OffloadedModule> parts_;
  std::unique_ptr<Either> rebuilt_or_sent_;  // null: not both
  std::unique_ptr<Either> rebuilt_or_kept_;
};

}  // namespace pentatron::transformer
