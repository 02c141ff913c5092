// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/distributed_saves.h"

#include <algorithm>
#include <utility>

#include "pentatron/comm/group.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {
namespace {

class Slice final : public SavedSlot {
 public:
  Slice(comm::Group& group, const Tensor& activation)
      : group_(group), shape_(tensor::shape_of(activation)), elements_(activation.numel()) {
    const tensor::NoGrad no_grad;
    const std::int64_t ranks = group.size();
    const std::int64_t length = (elements_ + ranks - 1) / ranks;
    const std::int64_t begin = std::min(elements_, group.rank() * length);
    const std::int64_t own = std::min(length, elements_ - begin);
    // Memory of its own: the activation's is to be given back.
    own_ = tensor::zeros({length}, activation.scalar_type(), activation.device());
    own_.narrow(0, 0, own).copy_(
        activation.variable_data().contiguous().view({-1}).narrow(0, begin, own));
  }

  Tensor get() override {
    const tensor::NoGrad no_grad;
    return comm::all_gather(group_, own_).narrow(0, 0, elements_).view(shape_);
  }

 private:
  comm::Group& group_;
  Shape shape_;
  std::int64_t elements_;
  Tensor own_;
};

}  // namespace

DistributedSaves::DistributedSaves(const LeafContext& context) : group_(context.group("tp")) {}

std::shared_ptr<SavedSlot> DistributedSaves::slot_for(const Tensor& activation,
                                                      const SaveSite& /*site*/) {
  return std::make_shared<Slice>(group_, activation);
}

}  // namespace pentatron::parallel_layers
