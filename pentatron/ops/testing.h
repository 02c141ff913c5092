// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/weight_ref.h"

// What the tests of this module share.
namespace pentatron::ops::testing {

// A weight with its gradient buffer, which starts as NaN: the first write of a step must overwrite
// it.
class TestWeight final : public WeightRef {
 public:
  explicit TestWeight(Tensor value, DType grad_dtype)
      : value_(std::move(value)),
        grad_(tensor::full(value_.sizes(), std::numeric_limits<double>::quiet_NaN(), grad_dtype,
                           value_.device())) {}
  explicit TestWeight(const Tensor& value) : TestWeight(value, value.scalar_type()) {}

  WeightView forward_view(WeightFormat) override { return {value_, {}}; }
  WeightView backward_view(WeightFormat) override { return {value_, {}}; }
  GradSlot grad_slot() override {
    ++writes_;
    return {grad_, writes_ > 1};
  }
  bool trainable() const override { return trainable_; }

  void set_trainable(bool trainable) { trainable_ = trainable; }
  void set_grad(const Tensor& grad) { grad_ = grad; }
  void new_step() { writes_ = 0; }
  int writes() const { return writes_; }
  const Tensor& value() const { return value_; }
  const Tensor& grad() const { return grad_; }

 private:
  Tensor value_;
  Tensor grad_;
  int writes_ = 0;
  bool trainable_ = true;
};

// Normal values that depend on the seed alone.
inline Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype = DType::Double,
                     double std = 1.0) {
  Tensor t = tensor::empty(shape, dtype);
  tensor::fill_normal_keyed(t, seed, "test", std, shape, Shape(shape.size(), 0));
  return t;
}

// The equality of all op tests: max|a - b| <= tolerance * max|b|. The two may be on different
// devices.
inline void expect_close(const Tensor& a, const Tensor& b, double tolerance,
                         const std::string& what) {
  ASSERT_TRUE(a.defined() && b.defined()) << what;
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() == 0) return;
  const tensor::NoGrad no_grad;
  const Tensor wide_a = a.cpu().to(DType::Double), wide_b = b.cpu().to(DType::Double);
  const double worst = wide_a.sub(wide_b).abs().max().item<double>();
  const double largest = wide_b.abs().max().item<double>();
  EXPECT_TRUE(worst <= tolerance * largest)
      << what << ": off by " << worst << " at largest " << largest;
}

inline bool bit_equal(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.cpu().equal(b.cpu());
}

inline Tensor leaf(const Tensor& value) { return value.clone().set_requires_grad(true); }

}  // namespace pentatron::ops::testing
