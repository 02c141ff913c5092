// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/adapters.h"

#include <algorithm>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/config/adapter_names.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

using config::AdapterPart;

constexpr std::int64_t kRowsAtATime = 512;  // of a weight that are widened

// Of the part's rows, as far as this rank holds their columns.
Tensor squares_of(nn::Parameter& weight, const nn::ShardPart& part) {
  const Tensor rows = nn::part_view(weight.data(), part);
  Tensor squares = tensor::empty({rows.size(0)}, kAccumulationDType, rows.device());
  for (std::int64_t row = 0; row < rows.size(0); row += kRowsAtATime) {
    const std::int64_t count = std::min(kRowsAtATime, rows.size(0) - row);
    const Tensor wide = rows.narrow(0, row, count).to(kAccumulationDType);
    squares.narrow(0, row, count).copy_(wide.mul(wide).sum(1));
  }
  return squares;
}

}  // namespace

void freeze_all_but_adapters(const std::vector<nn::Parameter*>& parameters) {
  for (nn::Parameter* parameter : parameters) {
    if (!config::is_adapter_name(parameter->local_name())) parameter->set_trainable(false);
  }
}

std::map<const nn::Parameter*, Tensor> row_lengths(const std::vector<nn::Parameter*>& parameters,
                                                   comm::ParallelContext& context) {
  const tensor::NoGrad no_grad;
  std::map<std::string, nn::Parameter*> magnitudes;  // by the name of the weight's part
  for (nn::Parameter* parameter : parameters) {
    std::string name = parameter->local_name();
    constexpr std::string_view kEnd = config::suffix_of(AdapterPart::kMagnitude);
    if (!name.ends_with(kEnd)) continue;
    name.resize(name.size() - kEnd.size());
    magnitudes[name + ".weight"] = parameter;
  }
  std::map<const nn::Parameter*, Tensor> lengths;
  for (nn::Parameter* weight : parameters) {
    for (const nn::ShardPart& part : weight->spec().parts) {
      const auto magnitude = magnitudes.find(part.name);
      if (magnitude == magnitudes.end()) continue;
      const Tensor squares = squares_of(*weight, part);
      if (part.box.size.at(1) < part.logical_shape.at(1)) {
        comm::all_reduce(context.group("tp"), squares);
      }
      lengths[magnitude->second] = squares.sqrt();
    }
  }
  PENTATRON_CHECK(lengths.size() == magnitudes.size(), kInternal,
                  "{} magnitudes, but weights of {}", magnitudes.size(), lengths.size());
  return lengths;
}

}  // namespace pentatron::training
