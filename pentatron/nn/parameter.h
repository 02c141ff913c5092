// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "pentatron/nn/shard_spec.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron::nn {

// A weight of this rank: storage, description, gradient slot. Not an autograd leaf. Storage and
// slot may be moved into flat buffers after construction (bind_*). A slot asked of a frozen weight
// or before bind_grad(), and views that do not fit: kInternal. fp8 forms: kUnsupported.
class Parameter final : public WeightRef {
 public:
  Parameter(std::string local_name, ShardSpec spec, const PrecisionPolicy& policy,
            Device device = kCpu);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  [[nodiscard]] WeightView forward_view(WeightFormat format) override;
  [[nodiscard]] WeightView backward_view(WeightFormat format) override;
  [[nodiscard]] GradSlot grad_slot() override;
  [[nodiscard]] bool trainable() const override { return trainable_; }

  void set_trainable(bool trainable) { trainable_ = trainable; }
  [[nodiscard]] const std::string& local_name() const { return local_name_; }
  [[nodiscard]] const ShardSpec& spec() const { return spec_; }
  [[nodiscard]] std::int64_t num_local_elements() const;
  // Parameter dtype, local shape. Writing values goes through here; forward reads it.
  [[nodiscard]] Tensor& data() { return data_; }
  // Main-gradient buffer of local shape; undefined until bind_grad.
  [[nodiscard]] Tensor& main_grad() { return main_grad_; }
  // Replaces the storage by a view of a flat buffer (values are copied over): contiguous, local
  // shape, parameter dtype.
  void bind_data(Tensor view);
  // Contiguous, local shape, main-gradient dtype.
  void bind_grad(Tensor view);
  // A step begins: the next slot overwrites.
  void begin_step() { written_ = false; }
  [[nodiscard]] bool grad_written() const { return written_; }
  // Writes zeros into a slot that nothing wrote in this step.
  void finish_grad();
  // Fills data() by the parts' InitSpec, keyed by (seed, global part name, global element); padding
  // rows zero.
  void initialise(std::uint64_t seed);

 private:
  std::string local_name_;
  ShardSpec spec_;
  PrecisionPolicy policy_;
  Tensor data_;
  Tensor main_grad_;
  bool trainable_ = true;
  bool written_ = false;
};

}  // namespace pentatron::nn
