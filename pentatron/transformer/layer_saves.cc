// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer_saves.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

class LayerSaves::Either final : public SavePolicy {
 public:
  Either(tensor::RebuildActivations& rebuilt, SavePolicy& others)
      : rebuilt_(rebuilt), others_(others) {}
  std::shared_ptr<SavedSlot> slot_for(const Tensor& activation, const SaveSite& site) override {
    if (auto slot = rebuilt_.slot_for(activation, site)) return slot;
    return others_.slot_for(activation, site);
  }
  [[nodiscard]] bool wants_rebuild(const SaveSite& site) const override {
    return rebuilt_.wants_rebuild(site);
  }
  void can_rebuild(const Tensor& output, Rebuild rebuild) override {
    rebuilt_.can_rebuild(output, std::move(rebuild));
  }

 private:
  tensor::RebuildActivations& rebuilt_;
  SavePolicy& others_;
};

LayerSaves::LayerSaves(const config::ModelConfig& config, tensor::OffloadActivations* host,
                       const OffloadPlan& plan, int layer)
    : host_(host) {
  if (RecomputePlan::recomputes(config, RecomputedModule::kLayerNorm)) {
    norms_ = std::make_unique<tensor::RebuildActivations>(
        std::vector<std::string>{"LayerNorm", "RmsNorm"});
  }
  if (host_ == nullptr) return;
  for (const OffloadedModule part :
       {OffloadedModule::kAttnNorm, OffloadedModule::kQkvLinear, OffloadedModule::kCoreAttn,
        OffloadedModule::kAttnProj, OffloadedModule::kMlpNorm}) {
    if (plan.offloads(layer, part)) parts_.push_back(part);
  }
  if (norms_ == nullptr) return;
  rebuilt_or_sent_ = std::make_unique<Either>(*norms_, *host_);
  rebuilt_or_kept_ = std::make_unique<Either>(*norms_, host_->bystanders());
}

LayerSaves::~LayerSaves() = default;

SavePolicy* LayerSaves::policy(const nn::StepContext& step, bool offloaded) const {
  if (host_ == nullptr || step.phase == nn::Phase::kRecompute) {
    return norms_ != nullptr ? norms_.get() : host_ != nullptr ? nullptr : step.scope.saves;
  }
  if (norms_ != nullptr) return offloaded ? rebuilt_or_sent_.get() : rebuilt_or_kept_.get();
  return offloaded ? static_cast<SavePolicy*>(host_) : &host_->bystanders();
}

LayerSaves::Scope LayerSaves::around(nn::StepContext& step) const {
  return {step, policy(step, false)};
}

LayerSaves::Scope LayerSaves::around(nn::StepContext& step, OffloadedModule part) const {
  return {step, policy(step, std::find(parts_.begin(), parts_.end(), part) != parts_.end())};
}

}  // namespace pentatron::transformer
