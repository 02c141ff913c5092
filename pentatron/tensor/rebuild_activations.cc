// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/rebuild_activations.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

class RebuildSlot final : public SavedSlot {
 public:
  RebuildSlot(const Tensor& activation, SavePolicy::Rebuild rebuild,
              std::shared_ptr<std::int64_t> count)
      : shape_(shape_of(activation)),
        dtype_(activation.scalar_type()),
        rebuild_(std::move(rebuild)),
        count_(std::move(count)) {}

  Tensor get() override {
    if (!values_.defined()) {
      const NoGrad no_grad;
      values_ = rebuild_();
      PENTATRON_CHECK(values_.defined() && values_.sizes() == IntList(shape_) &&
                          values_.scalar_type() == dtype_,
                      kInternal, "an activation was rebuilt as {}, which is not what was saved",
                      values_.defined() ? describe(values_) : "nothing");
      rebuild_ = nullptr;  // and with it what the producer saved
      ++*count_;
    }
    return values_;
  }

 private:
  Shape shape_;
  DType dtype_;
  SavePolicy::Rebuild rebuild_;
  std::shared_ptr<std::int64_t> count_;
  Tensor values_;
};

}  // namespace

RebuildActivations::RebuildActivations(std::vector<std::string> ops) : ops_(std::move(ops)) {}

bool RebuildActivations::wants_rebuild(const SaveSite& site) const {
  return std::find(ops_.begin(), ops_.end(), site.op) != ops_.end();
}

void RebuildActivations::can_rebuild(const Tensor& output, Rebuild rebuild) {
  // Offers that nobody took hold their producer's inputs until here at the longest.
  std::erase_if(offers_, [](const Offer& offer) { return !offer.key.alive(); });
  offers_.push_back({.key = ActivationKey(output), .rebuild = std::move(rebuild)});
}

std::shared_ptr<SavedSlot> RebuildActivations::slot_for(const Tensor& activation,
                                                        const SaveSite& /*site*/) {
  if (auto slot = slots_.find(activation)) return slot;
  const auto offer = std::find_if(offers_.rbegin(), offers_.rend(), [&](const Offer& candidate) {
    return candidate.key.shows(activation);
  });
  if (offer == offers_.rend()) return nullptr;
  auto slot = std::make_shared<RebuildSlot>(activation, std::move(offer->rebuild), num_rebuilt_);
  offers_.erase(std::next(offer).base());
  slots_.add(activation, slot);
  return slot;
}

}  // namespace pentatron::tensor
