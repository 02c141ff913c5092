// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/adapter.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/config/adapter_names.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/linear.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/parallel_layers/split_linear.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {

using config::AdapterPart;

namespace {

constexpr std::int64_t kRowsOfLengths = 512;  // of a weight that are widened at a time

// Adapters are small, and what they lack in bits the frozen weight cannot make up for.
ops::Scope exact(ops::Scope scope) {
  scope.recipe = {};
  return scope;
}

}  // namespace

// Products of the weight with the input, with the dropped input (undefined: the same), and of the
// adapters with the latter.
struct Adapter::Products {
  Tensor base;
  Tensor base_of_dropped;
  Tensor low_rank;
};

std::unique_ptr<Adapter> Adapter::make(const LeafContext& context, const nn::ParameterPlan& plan,
                                       const std::string& name, const AdapterForm& form,
                                       nn::Parameter& weight, nn::Parameter* bias) {
  if (plan.find(config::adapter_name(name, AdapterPart::kDown)) == nullptr) return nullptr;
  return std::unique_ptr<Adapter>(new Adapter(context, plan, name, form, weight, bias));
}

Adapter::Adapter(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
                 const AdapterForm& form, nn::Parameter& weight, nn::Parameter* bias)
    : context_(context),
      site_(name + ".lora_dropout"),
      form_(form),
      weight_(weight),
      bias_(bias),
      down_(&add_parameter(
          make_parameter(context, plan, config::adapter_name(name, AdapterPart::kDown)))) {
  const auto add = [&](const std::string& of, AdapterPart part) -> nn::Parameter* {
    auto parameter = make_parameter_if_planned(context, plan, config::adapter_name(of, part));
    return parameter == nullptr ? nullptr : &add_parameter(std::move(parameter));
  };
  const std::vector<nn::ShardPart>& parts = weight_.spec().parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    nn::Parameter* up = add(parts[i].name, AdapterPart::kUp);
    if (up == nullptr) continue;
    pieces_.push_back({i, up, add(parts[i].name, AdapterPart::kMagnitude)});
  }
  const nn::ShardPart& down = down_->spec().parts.at(0);
  splits_inputs_ = down.box.size.at(1) < down.logical_shape.at(1);
  PENTATRON_CHECK(
      form_.rank == down.logical_shape.at(0) && pieces_.size() == down_->spec().parts.size(),
      kInternal, "the adapters of {} are planned with another form", name);
}

bool Adapter::drops(const nn::StepContext& step) const {
  return form_.dropout > 0 && step.training();
}

Tensor Adapter::dropped(const Tensor& x, bool of_local_rows, std::int64_t channel_begin,
                        const nn::StepContext& step) const {
  if (!drops(step)) return x;
  const SequenceLayout& text = step.batch.text();
  LeafContext::Rows rows{.begin = 0, .size = text.num_rows()};
  if (of_local_rows) rows = context_.local_rows(text.num_rows());
  return ops::dropout(x, form_.dropout, make_site(step.seed, site_),
                      text.sample_ids().narrow(0, rows.begin, rows.size),
                      text.token_index().narrow(0, rows.begin, rows.size), channel_begin);
}

Tensor Adapter::up_products(const Tensor& low, const nn::StepContext& step) const {
  std::vector<Tensor> inputs = {low};
  if (pieces_.size() > 1) {
    inputs = split_columns(low, std::vector<std::int64_t>(pieces_.size(), form_.rank), form_.rank);
  }
  const std::vector<nn::ShardPart>& parts = weight_.spec().parts;
  std::vector<Tensor> outputs;
  std::size_t next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (next == pieces_.size() || pieces_[next].part != i) {
      outputs.push_back(
          tensor::zeros({low.size(0), parts[i].local_rows}, low.scalar_type(), low.device()));
      continue;
    }
    const Tensor in = pieces_.size() > 1 ? inputs[next].flatten(1).contiguous() : low;
    outputs.push_back(ops::linear(in, *pieces_[next].up, nullptr, exact(step.scope)));
    ++next;
  }
  return outputs.size() == 1 ? outputs[0] : tensor::cat(outputs, 1);
}

Tensor Adapter::lengths(std::size_t index, DType dtype) {
  const tensor::NoGrad no_grad;
  const Piece& piece = pieces_[index];
  const nn::ShardPart& part = weight_.spec().parts[piece.part];
  const Tensor down = down_->forward_weight()
                          .narrow(0, static_cast<std::int64_t>(index) * form_.rank, form_.rank)
                          .to(dtype);
  const Tensor up = piece.up->forward_weight().to(dtype);
  const Tensor weight = weight_.forward_weight().narrow(0, part.local_row_begin, part.local_rows);
  Tensor squares = tensor::empty({part.local_rows}, dtype, weight.device());
  for (std::int64_t row = 0; row < part.local_rows; row += kRowsOfLengths) {
    const std::int64_t count = std::min(kRowsOfLengths, part.local_rows - row);
    const Tensor change = tensor::matmul(up.narrow(0, row, count), down);
    const Tensor rows = weight.narrow(0, row, count).to(dtype).add(change, form_.scale);
    squares.narrow(0, row, count).copy_(rows.mul(rows).sum(1));
  }
  if (splits_inputs_) comm::all_reduce(context_.group("tp"), squares);
  return squares.sqrt();
}

Tensor Adapter::combined(const Products& products, nn::StepContext& step) {
  if (!form_.dora) return products.base.add(products.low_rank, form_.scale);
  const DType compute = products.base.scalar_type();
  const std::vector<nn::ShardPart>& parts = weight_.spec().parts;
  std::vector<Tensor> ratios;  // of the new length to that of W + scale B A
  std::size_t next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (next == pieces_.size() || pieces_[next].part != i) {
      ratios.push_back(tensor::ones({parts[i].local_rows}, compute, products.base.device()));
      continue;
    }
    const Tensor magnitude = ops::as_graph_tensor(*pieces_[next].magnitude);
    const Tensor length = lengths(next, step.policy.statistics);
    ratios.push_back(magnitude.to(length.scalar_type()).div(length).to(compute));
    ++next;
  }
  const Tensor ratio_o = ratios.size() == 1 ? ratios[0] : tensor::cat(ratios, 0);
  const Tensor change = products.low_rank.mul(ratio_o.mul(form_.scale));
  if (!products.base_of_dropped.defined()) return products.base.mul(ratio_o).add(change);
  // The part of the weight's own product that the new length adds reads the dropped input too.
  return products.base.add(products.base_of_dropped.mul(ratio_o.sub(1.0))).add(change);
}

Tensor Adapter::with_bias(const Tensor& y, const nn::StepContext&) const {
  return bias_ == nullptr ? y : y.add(ops::as_graph_tensor(*bias_));
}

Tensor Adapter::split_outputs(const Tensor& x, nn::StepContext& step) {
  const Tensor in = dropped(x, /*of_local_rows=*/true, 0, step);
  const auto base = [&](const Tensor& of, WeightRef* bias) {
    return ops::linear(of, parallel_layers::split_outputs(context_, weight_, bias, step.scope));
  };
  const Tensor low = enter_split(context_, ops::linear(in, *down_, nullptr, exact(step.scope)));
  Products products{.base = base(x, form_.dora ? nullptr : bias_),
                    .base_of_dropped = {},
                    .low_rank = up_products(low, step)};
  if (!form_.dora) return combined(products, step);
  if (drops(step)) products.base_of_dropped = base(in, nullptr);
  return with_bias(combined(products, step), step);
}

Tensor Adapter::split_inputs(const Tensor& x_ti, nn::StepContext& step) {
  static_cast<void>(context_.local_rows(x_ti.size(0)));  // one clear error before ranks meet
  const std::int64_t first_channel = weight_.spec().parts.at(0).box.offset.at(1);
  const Tensor in = dropped(x_ti, /*of_local_rows=*/false, first_channel, step);
  const Tensor low = ops::linear(in, *down_, nullptr, exact(step.scope));
  Products products{.base = ops::linear(x_ti, weight_, nullptr, step.scope),
                    .base_of_dropped = {},
                    .low_rank = up_products(low, step)};
  if (form_.dora && drops(step)) {
    products.base_of_dropped = ops::linear(in, weight_, nullptr, step.scope);
  }
  return with_bias(leave_split(context_, combined(products, step)), step);
}

}  // namespace pentatron::parallel_layers
