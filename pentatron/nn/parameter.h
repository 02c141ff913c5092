// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "pentatron/nn/parameter_host.h"
#include "pentatron/nn/shard_spec.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron::nn {

// A weight of this rank: storage, description, gradient slot. Not an autograd leaf. Storage is made
// when it is first used, so a weight that is bound to a flat buffer before has none of its own.
// With a host (set_host), storage and slot may come and go between uses. A slot asked of a frozen
// weight or before bind_grad(), and views that do not fit: kInternal. fp8 forms are made when they
// are first asked for and kept until values_changed().
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
  // Weight decay applies to its vectors (biases, norms) too; before anybody has read the roles.
  void decay_vectors();
  [[nodiscard]] const std::string& local_name() const { return local_name_; }
  [[nodiscard]] const ShardSpec& spec() const { return spec_; }
  [[nodiscard]] std::int64_t num_local_elements() const;
  [[nodiscard]] DType dtype() const { return policy_.parameter; }
  [[nodiscard]] Device device() const { return device_; }
  // Parameter dtype, local shape, zeros at first. Writing values goes through here; forward reads
  // it. Asks the host where the storage is not there, so it may communicate.
  [[nodiscard]] Tensor& data() {
    if (!ready_) make_ready();
    return data_;
  }
  // Whether storage is bound or was made.
  [[nodiscard]] bool has_storage() const { return data_.defined(); }
  // Main-gradient buffer of local shape; undefined until bind_grad.
  [[nodiscard]] Tensor& main_grad() { return main_grad_; }
  // Who provides what is not there; it outlives the uses of this weight. Null: nobody.
  void set_host(ParameterHost* host) { host_ = host; }
  // Replaces the storage by a view of a flat buffer: contiguous, local shape, parameter dtype.
  // Values are copied over where there are any.
  void bind_data(Tensor view);
  // Values were written by others than fill and copy functions of this class (an optimizer step,
  // a checkpoint): what was made of them is made anew.
  void values_changed() { fp8_ = {}; }
  // The storage stays bound, but its values are on their way: the next use asks the host.
  void await_data() {
    ready_ = false;
    values_changed();
  }
  void data_arrived() { ready_ = data_.defined(); }
  // Gives storage or slot back: the next use asks the host.
  void release_data();
  void release_grad();
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
  void make_ready();
  [[nodiscard]] WeightView view(WeightFormat format);

  std::string local_name_;
  ShardSpec spec_;
  PrecisionPolicy policy_;
  Device device_;
  ParameterHost* host_ = nullptr;
  Tensor data_;
  Tensor main_grad_;
  // Both orders of the weight in fp8; undefined where nobody asked yet.
  tensor::Fp8Orders fp8_;
  tensor::ScaleBlock fp8_block_;
  bool ready_ = false;  // data_ may be used
  bool trainable_ = true;
  bool written_ = false;
};

}  // namespace pentatron::nn
