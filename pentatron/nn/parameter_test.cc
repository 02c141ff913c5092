// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/parameter.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/nn/module.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::nn {
namespace {

// Rows [begin, begin + real) of a [rows, 3] logical tensor in `local` local rows.
ShardSpec rows_spec(std::int64_t rows, std::int64_t begin, std::int64_t real, std::int64_t local,
                    InitKind kind = InitKind::kNormal) {
  ShardPart part;
  part.name = "w";
  part.logical_shape = {rows, 3};
  part.box = {{begin, 0}, {real, 3}};
  part.local_rows = local;
  part.init = {kind, 0.5};
  return {{part}, {local, 3}};
}

double largest(const Tensor& t) { return t.abs().max().item<double>(); }

TEST(Parameter, FirstWriteOfAStepOverwritesAndTheNextAdds) {
  const PrecisionPolicy policy = precision_policy("fp64");
  Parameter w("w", rows_spec(2, 0, 2, 2), policy);
  w.bind_grad(tensor::full({2, 3}, 55.0, policy.main_grad));  // garbage must vanish
  w.begin_step();
  write_grad(w, tensor::ones({2, 3}, DType::Double));
  EXPECT_TRUE(w.grad_written());
  write_grad(w, tensor::ones({2, 3}, DType::Double));
  EXPECT_EQ(largest(w.main_grad().sub(2.0)), 0.0);
  w.begin_step();
  EXPECT_FALSE(w.grad_written());
  write_grad(w, tensor::ones({2, 3}, DType::Double));
  EXPECT_EQ(largest(w.main_grad().sub(1.0)), 0.0);
}

TEST(Parameter, FinishZeroesWhatNothingWrote) {
  const PrecisionPolicy policy = precision_policy("fp32");
  Parameter w("w", rows_spec(2, 0, 2, 2), policy);
  w.bind_grad(tensor::full({2, 3}, 55.0, policy.main_grad));
  w.begin_step();
  w.finish_grad();
  EXPECT_EQ(largest(w.main_grad()), 0.0);
  w.begin_step();
  write_grad(w, tensor::ones({2, 3}, DType::Float));
  w.finish_grad();
  EXPECT_EQ(largest(w.main_grad()), 1.0);
}

// Made once for all uses of a step, and anew when the values were changed.
TEST(Parameter, Fp8FormsAreKeptUntilValuesChange) {
  Parameter w("w", rows_spec(32, 0, 32, 32), precision_policy("bf16"));
  w.data().fill_(2.0);
  const WeightFormat rows{.numbers = Numbers::kFp8};
  const WeightFormat columns{.numbers = Numbers::kFp8, .transposed = true};
  const WeightView first = w.forward_view(rows);
  EXPECT_TRUE(w.backward_view(rows).data.is_same(first.data));
  EXPECT_EQ(tensor::shape_of(w.backward_view(columns).data), (Shape{3, 32}));
  EXPECT_EQ(w.backward_view(columns).scale.item<float>(), first.scale.item<float>());
  w.data().fill_(8.0);
  EXPECT_TRUE(w.forward_view(rows).data.is_same(first.data));
  w.values_changed();
  EXPECT_EQ(w.forward_view(rows).scale.item<float>(), 4 * first.scale.item<float>());
}

TEST(Parameter, MisuseIsAnError) {
  const PrecisionPolicy policy = precision_policy("fp32");
  Parameter w("w", rows_spec(2, 0, 2, 2), policy);
  EXPECT_THROW(static_cast<void>(w.grad_slot()), Error);  // no buffer bound
  EXPECT_THROW(w.finish_grad(), Error);
  EXPECT_THROW(w.bind_grad(tensor::zeros({3, 3}, policy.main_grad)), Error);
  EXPECT_THROW(w.bind_grad(tensor::zeros({2, 3}, DType::Double)), Error);
  EXPECT_THROW(w.bind_grad(tensor::zeros({3, 2}, policy.main_grad).t()), Error);
  EXPECT_THROW(w.bind_grad(Tensor()), Error);
  EXPECT_THROW(w.bind_data(tensor::zeros({2, 3}, DType::Double)), Error);
  EXPECT_THROW(static_cast<void>(w.forward_view({.transposed = true})), Error);
  w.bind_grad(tensor::zeros({2, 3}, policy.main_grad));
  w.set_trainable(false);
  EXPECT_THROW(static_cast<void>(w.grad_slot()), Error);
  write_grad(w, tensor::ones({2, 3}, DType::Float));  // a frozen weight takes nothing
  EXPECT_EQ(largest(w.main_grad()), 0.0);
}

TEST(Parameter, BindDataKeepsValuesAndMovesStorage) {
  const PrecisionPolicy policy = precision_policy("fp32");
  Parameter w("w", rows_spec(2, 0, 2, 2), policy);
  w.initialise(3);
  const Tensor before = w.data().clone();
  Tensor flat = tensor::full({100}, -1.0, policy.parameter);
  w.bind_data(flat.narrow(0, 64, 6).view({2, 3}));
  EXPECT_TRUE(w.data().equal(before));
  flat.zero_();
  EXPECT_EQ(largest(w.forward_weight()), 0.0);
}

TEST(Parameter, ViewsHaveTheComputeDtype) {
  PrecisionPolicy policy = precision_policy("fp32");
  policy.compute = DType::BFloat16;
  Parameter w("w", rows_spec(2, 0, 2, 2), policy);
  EXPECT_EQ(w.forward_weight().scalar_type(), DType::BFloat16);
  EXPECT_EQ(w.backward_weight().scalar_type(), DType::BFloat16);
  EXPECT_EQ(w.data().scalar_type(), DType::Float);
}

TEST(Parameter, InitialValuesFollowTheLogicalPlaceAndPaddingIsZero) {
  const PrecisionPolicy policy = precision_policy("fp32");
  Parameter whole("w", rows_spec(8, 0, 8, 8), policy);
  Parameter piece("w", rows_spec(8, 5, 3, 4), policy);
  whole.initialise(11);
  piece.data().fill_(9.0);
  piece.initialise(11);
  EXPECT_TRUE(part_view(piece.data(), piece.spec().parts[0]).equal(whole.data().narrow(0, 5, 3)));
  EXPECT_EQ(largest(piece.data().narrow(0, 3, 1)), 0.0);
  EXPECT_GT(largest(whole.data()), 0.0);
  const Tensor before = whole.data().clone();
  whole.initialise(12);
  EXPECT_FALSE(whole.data().equal(before));
  Parameter ones("w", rows_spec(8, 0, 8, 8, InitKind::kOnes), policy);
  ones.initialise(1);
  EXPECT_EQ(largest(ones.data().sub(1.0)), 0.0);
}

class Leaf final : public Module {
 public:
  explicit Leaf(const std::string& name) {
    add_parameter(
        std::make_unique<Parameter>(name, rows_spec(2, 0, 2, 2), precision_policy("fp32")));
  }
};
class Counter final : public Module {
 public:
  Counter() { add_buffer(std::make_unique<Buffer>("y", rows_spec(2, 0, 2, 2), DType::Double)); }
};
class Tree final : public Module {
 public:
  Tree() {
    add_child(std::make_unique<Leaf>("a"));
    add_parameter(
        std::make_unique<Parameter>("b", rows_spec(2, 0, 2, 2), precision_policy("fp32")));
    add_buffer(std::make_unique<Buffer>("x", rows_spec(4, 1, 2, 3), DType::Long));
    add_child(std::make_unique<Counter>());
    add_child(std::make_unique<Leaf>("c"));
    add_buffer(std::make_unique<Buffer>("z", rows_spec(2, 0, 2, 2), DType::Float));
  }
};

TEST(Module, VisitsInOrderOfRegistration) {
  Tree tree;
  std::string order;
  for (Parameter* parameter : tree.parameters()) order += parameter->local_name();
  EXPECT_EQ(order, "abc");
}

TEST(Module, BuffersAreNoParameters) {
  Tree tree;
  std::string order;
  for (Buffer* buffer : tree.buffers()) order += buffer->local_name();
  EXPECT_EQ(order, "xyz");
  Buffer& counts = *tree.buffers()[0];
  EXPECT_EQ(counts.data().scalar_type(), DType::Long);
  EXPECT_EQ(counts.spec().parts[0].name, "w");
  EXPECT_EQ(counts.data().abs().max().item<std::int64_t>(), 0);
  // What a checkpoint writes into: the live values, without the padding row.
  const Tensor values = counts.part_values(counts.spec().parts[0]);
  EXPECT_EQ(tensor::shape_of(values), (Shape{6}));
  values.fill_(7);
  EXPECT_EQ(counts.data().sum().item<std::int64_t>(), 42);
  EXPECT_EQ(counts.data()[2].abs().max().item<std::int64_t>(), 0);
  EXPECT_THROW(Buffer("bad", rows_spec(2, 1, 2, 2), DType::Float), Error);
}

TEST(KvCache, GrowsKeepsAndRefuses) {
  KvCache cache(2, 200, 1, 2, DType::Double);
  const Tensor all = tensor::arange(400, DType::Double).view({200, 1, 2});
  for (std::int64_t at = 0; at < 200; at += 50) {
    const KvCache::View view =
        cache.append(1, all.narrow(0, at, 50), all.narrow(0, at, 50).mul(2.0));
    EXPECT_TRUE(view.k_sgd.equal(all.narrow(0, 0, at + 50)));
    EXPECT_TRUE(view.v_sgd.equal(all.narrow(0, 0, at + 50).mul(2.0)));
  }
  EXPECT_EQ(cache.length(1), 200);
  EXPECT_EQ(cache.length(0), 0);
  const Tensor one = all.narrow(0, 0, 1);
  EXPECT_THROW(static_cast<void>(cache.append(1, one, one)), Error);  // full
  EXPECT_THROW(static_cast<void>(cache.append(2, one, one)), Error);  // no such layer
  const Tensor wide = tensor::zeros({1, 2, 2}, DType::Double);
  EXPECT_THROW(static_cast<void>(cache.append(0, wide, wide)), Error);
  EXPECT_THROW(static_cast<void>(cache.append(0, one, all)), Error);
  cache.clear();
  EXPECT_EQ(cache.length(1), 0);
  EXPECT_TRUE(cache.append(1, one, one).k_sgd.equal(one));
}

}  // namespace
}  // namespace pentatron::nn
