// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/parameter.h"

#include <fmt/ranges.h>
#include <cmath>

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"

namespace pentatron::nn {

Parameter::Parameter(std::string local_name, ShardSpec spec, const PrecisionPolicy& policy,
                     Device device)
    : local_name_(std::move(local_name)), spec_(std::move(spec)), policy_(policy), device_(device) {
  check_spec(spec_);
}

void Parameter::decay_vectors() {
  for (ShardPart& part : spec_.parts) {
    if (part.role == ShardRole::kVector) part.role = ShardRole::kDecayedVector;
  }
}

void Parameter::make_ready() {
  if (host_ != nullptr) {
    host_->provide_data(*this);
    PENTATRON_CHECK(ready_, kInternal, "weight {}: its host provided no storage", local_name_);
    return;
  }
  data_ = tensor::zeros(spec_.local_shape, policy_.parameter, device_);
  ready_ = true;
}

WeightView Parameter::view(WeightFormat format) {
  const Tensor& values = data();
  if (format.numbers == Numbers::kCompute) {
    PENTATRON_CHECK(!format.transposed, kInternal,
                    "weight {}: only fp8 forms come transposed, the others are read as they are",
                    local_name_);
    return {values.scalar_type() == policy_.compute ? values : values.to(policy_.compute)};
  }
  // Scales of blocks belong to the tensor as it comes.
  const tensor::ScaleBlock block = format.transposed
                                       ? tensor::ScaleBlock{format.block.columns, format.block.rows}
                                       : format.block;
  const bool made =
      format.transposed ? fp8_.columns_km.data.defined() : fp8_.rows_mk.data.defined();
  if (!made || !(fp8_block_ == block)) {
    // A weight that learns is read both ways in each micro-batch; one pass makes both.
    fp8_ = ops::op_table(values.device())
               .fp8_orders(values, {.block = block, .rows = true, .columns = true});
    fp8_block_ = block;
  }
  const tensor::Fp8Tensor& form = format.transposed ? fp8_.columns_km : fp8_.rows_mk;
  return {.data = form.data, .scale = form.scale, .block = form.block};
}

WeightView Parameter::forward_view(WeightFormat format) { return view(format); }

WeightView Parameter::backward_view(WeightFormat format) { return view(format); }

GradSlot Parameter::grad_slot() {
  PENTATRON_CHECK(trainable_, kInternal, "weight {} is frozen and has no gradient slot",
                  local_name_);
  if (!main_grad_.defined() && host_ != nullptr) host_->provide_grad(*this);
  PENTATRON_CHECK(main_grad_.defined(), kInternal,
                  "weight {}: backward ran before a gradient buffer was bound", local_name_);
  return {main_grad_, std::exchange(written_, true)};
}

std::int64_t Parameter::num_local_elements() const {
  return tensor::num_elements(spec_.local_shape);
}

void Parameter::bind_data(Tensor view) {
  PENTATRON_CHECK(view.defined() && tensor::shape_of(view) == spec_.local_shape &&
                      view.scalar_type() == policy_.parameter && view.is_contiguous(),
                  kInternal, "weight {}: storage must be a contiguous {}{}, not {}", local_name_,
                  tensor::dtype_name(policy_.parameter), spec_.local_shape,
                  view.defined() ? tensor::describe(view) : "an undefined tensor");
  if (data_.defined()) view.copy_(data_);
  data_ = std::move(view);
  ready_ = true;
  values_changed();
}

void Parameter::release_data() {
  data_ = Tensor();
  ready_ = false;
  values_changed();
}

void Parameter::release_grad() {
  main_grad_ = Tensor();
  written_ = false;
}

void Parameter::bind_grad(Tensor view) {
  PENTATRON_CHECK(view.defined() && tensor::shape_of(view) == spec_.local_shape &&
                      view.scalar_type() == policy_.main_grad && view.is_contiguous(),
                  kInternal, "weight {}: gradient buffer must be a contiguous {}{}, not {}",
                  local_name_, tensor::dtype_name(policy_.main_grad), spec_.local_shape,
                  view.defined() ? tensor::describe(view) : "an undefined tensor");
  main_grad_ = std::move(view);
  written_ = false;
}

void Parameter::finish_grad() {
  if (written_ || !trainable_) return;
  PENTATRON_CHECK(main_grad_.defined(), kInternal,
                  "weight {}: a step ended before a gradient buffer was bound", local_name_);
  main_grad_.zero_();
  written_ = true;
}

void Parameter::initialise(std::uint64_t seed) {
  data().zero_();  // padding rows
  values_changed();
  for (const ShardPart& part : spec_.parts) {
    if (part.box.empty()) continue;
    Tensor real_rows = part_view(data_, part);
    switch (part.init.kind) {
      case InitKind::kNormal:
        tensor::fill_normal_keyed(real_rows, seed, part.name, part.init.std, part.logical_shape,
                                  part.box.offset);
        break;
      case InitKind::kUniform:
        tensor::fill_uniform_keyed(real_rows, seed, part.name, part.init.std * std::sqrt(3.0),
                                   part.logical_shape, part.box.offset);
        break;
      case InitKind::kOnes:
        real_rows.fill_(1.0);
        break;
      case InitKind::kZeros:
        break;
    }
  }
}

}  // namespace pentatron::nn
