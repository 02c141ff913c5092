// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/adapter_merge.h"

#include "pentatron/config/adapter_names.h"
#include "pentatron/config/adapters.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::conversion {

using config::adapter_name;
using config::AdapterPart;
using families::Part;

bool CheckpointAdapters::adapts(const std::string& weight) const {
  return model_.lora_rank > 0 && reader_.has("param/" + adapter_name(weight, AdapterPart::kDown));
}

Tensor CheckpointAdapters::read(const std::string& name, const Shape& shape, std::int64_t begin,
                                std::int64_t count) const {
  nn::Box box{Shape(shape.size(), 0), shape};
  box.offset[0] = begin;
  box.size[0] = count;
  const Tensor values = tensor::empty({box.num_elements()}, kAccumulationDType);
  reader_.read("param/" + name, shape, box, 0, values);
  return values.view(box.size);
}

Tensor CheckpointAdapters::down(const Part& weight) const {
  return read(adapter_name(weight.name, AdapterPart::kDown), {model_.lora_rank, weight.shape.at(1)},
              0, model_.lora_rank);
}

Tensor CheckpointAdapters::up(const Part& weight, std::int64_t begin, std::int64_t count) const {
  return read(adapter_name(weight.name, AdapterPart::kUp), {weight.shape.at(0), model_.lora_rank},
              begin, count);
}

Tensor CheckpointAdapters::magnitude(const Part& weight, std::int64_t begin,
                                     std::int64_t count) const {
  return read(adapter_name(weight.name, AdapterPart::kMagnitude), {weight.shape.at(0)}, begin,
              count);
}

Tensor CheckpointAdapters::merged(const Part& weight, std::int64_t begin,
                                  const Tensor& rows) const {
  const std::int64_t count = rows.size(0);
  const Tensor change = tensor::matmul(up(weight, begin, count), down(weight));
  const Tensor sum = rows.add(change, config::adapter_scale(model_));
  if (!model_.lora_dora) return sum;
  const Tensor length = sum.mul(sum).sum(1).sqrt();
  return sum.mul(magnitude(weight, begin, count).div(length).unsqueeze(1));
}

}  // namespace pentatron::conversion
