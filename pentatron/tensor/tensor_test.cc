// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"
#include "pentatron/tensor/blas.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/saved.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron {
namespace {

Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype = DType::Double) {
  Tensor t = tensor::empty(shape, dtype);
  tensor::fill_normal_keyed(t, seed, "test", 1.0, shape, Shape(shape.size(), 0));
  return t;
}

double worst(const Tensor& a, const Tensor& b) {
  return a.to(DType::Double).sub(b.to(DType::Double)).abs().max().item<double>();
}

TEST(Tensor, DtypeNamesGoBothWays) {
  for (const char* name : {"fp64", "fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int64", "int32",
                           "int16", "int8", "uint8", "bool"}) {
    const DType dtype = tensor::parse_dtype(name);
    EXPECT_EQ(tensor::dtype_name(dtype), name);
    EXPECT_EQ(tensor::from_safetensors_dtype(tensor::safetensors_dtype(dtype)), dtype);
  }
  EXPECT_EQ(tensor::safetensors_dtype(DType::BFloat16), "BF16");
  EXPECT_EQ(tensor::item_bytes(DType::BFloat16), 2);
  EXPECT_THROW((void)tensor::parse_dtype("float"), Error);
  EXPECT_THROW((void)tensor::from_safetensors_dtype("F128"), Error);
  EXPECT_EQ(tensor::describe(tensor::zeros({4, 16}, DType::BFloat16)), "bf16[4, 16]");
  EXPECT_EQ(tensor::describe(Tensor()), "undefined");
}

TEST(Tensor, ElementCountsAreChecked) {
  EXPECT_EQ(tensor::num_elements({3, 4, 5}), 60);
  EXPECT_EQ(tensor::num_elements({}), 1);
  EXPECT_THROW((void)tensor::num_elements({std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
  EXPECT_THROW((void)tensor::num_elements({3, -1}), Error);
}

TEST(Facade, FactoriesAndVectors) {
  EXPECT_EQ(tensor::full({2}, 3.5, DType::Double)[1].item<double>(), 3.5);
  EXPECT_EQ(tensor::arange(5, DType::Long)[4].item<std::int64_t>(), 4);
  EXPECT_EQ(tensor::scalar(2.0, DType::Float).dim(), 0);
  EXPECT_EQ(tensor::from_vector(std::vector<std::int32_t>{7, -8})[1].item<int>(), -8);
  EXPECT_EQ(tensor::from_vector(std::vector<double>{}).numel(), 0);
  std::vector<float> memory{1, 2, 3, 4};
  const Tensor borrowed = tensor::from_blob(memory.data(), {2, 2}, DType::Float);
  borrowed[1][0] = 9.0;
  EXPECT_EQ(memory[2], 9.0F);
  const Tensor a = tensor::zeros({2}, DType::Float), b = tensor::ones({2}, DType::Float);
  EXPECT_EQ(tensor::cat({a, b}, 0).numel(), 4);
  EXPECT_EQ(tensor::stack({a, b}, 0).sizes(), (IntList{2, 2}));
  EXPECT_EQ(tensor::where(a.eq(0.0), b, a).sum().item<float>(), 2.0F);
}

TEST(Facade, MatmulIsRoundedOnce) {
  const Tensor a = normal({17, 300}, 1, DType::BFloat16), b = normal({300, 23}, 2, DType::BFloat16);
  const Tensor exact = a.to(DType::Double).matmul(b.to(DType::Double));
  const Tensor product = tensor::matmul(a, b);
  EXPECT_EQ(product.scalar_type(), DType::BFloat16);
  // Half a unit of bf16's last place, and a little for the fp32 sum.
  EXPECT_TRUE(product.to(DType::Double)
                  .sub(exact)
                  .abs()
                  .le(exact.abs().mul(0.0039063).add(1e-4))
                  .all()
                  .item<bool>());
}

TEST(Facade, MatmulIntoEveryPairOfDtypes) {
  for (const DType in : {DType::Double, DType::Float, DType::BFloat16}) {
    for (const DType out : {DType::Double, DType::Float, DType::BFloat16}) {
      const Tensor a = normal({40, 9}, 1, in).t(), b = normal({40, 33}, 2, in);
      const Tensor exact = a.to(DType::Double).matmul(b.to(DType::Double));
      Tensor c = tensor::full({9, 33}, std::nan(""), out);
      tensor::matmul_into(c, a, b, false);
      const bool low = out == DType::BFloat16;
      const double bound = low ? 0.1 : (out == DType::Float || in != DType::Double ? 2e-5 : 1e-12);
      EXPECT_LT(worst(c, exact), bound);
      tensor::matmul_into(c, a, b, true);
      EXPECT_LT(worst(c, exact.mul(2.0)), 2.0 * bound);
    }
  }
  Tensor empty = tensor::full({2, 3}, 5.0, DType::Float);
  tensor::matmul_into(empty, tensor::zeros({2, 0}, DType::Float),
                      tensor::zeros({0, 3}, DType::Float), true);
  EXPECT_EQ(empty.sum().item<float>(), 30.0F);
  tensor::matmul_into(empty, tensor::zeros({2, 0}, DType::Float),
                      tensor::zeros({0, 3}, DType::Float), false);
  EXPECT_EQ(empty.sum().item<float>(), 0.0F);
  EXPECT_THROW(tensor::matmul_into(empty, empty, empty, false), Error);
}

TEST(Facade, WideningCopiesAStripAtATime) {
  // 2,048 x 4,096 weights: 32 MiB in fp32, strips of 8.
  const Tensor x = normal({4, 2048}, 1, DType::BFloat16);
  const Tensor w = tensor::full({4096, 2048}, 0.5, DType::BFloat16);
  const tensor::MemoryMeter meter;
  const Tensor y = tensor::matmul(x, w.t());
  EXPECT_LE(meter.largest_allocation(), (8 << 20) + 8192);
  EXPECT_LT(worst(y[0].narrow(0, 4095, 1), x[0].to(DType::Double).sum().mul(0.5)), 0.5);
}

TEST(Facade, GemmOnRawMemory) {
  const Tensor a = normal({5, 7}, 1), b = normal({6, 9}, 2);
  // op(a) = columns 1..3 of a, transposed [3, 5]; op(b) = rows of b's left part, transposed: needs
  // k = 5.
  Tensor c = tensor::full({3, 8}, 2.0, DType::Double);
  tensor::gemm(tensor::Transpose::kYes, tensor::Transpose::kYes, 3, 6, 5, 0.5,
               a.const_data_ptr<double>() + 1, 7, b.const_data_ptr<double>(), 9, 3.0,
               c.data_ptr<double>(), 8);
  const Tensor expected = a.narrow(1, 1, 3).t().matmul(b.narrow(1, 0, 5).t()).mul(0.5).add(6.0);
  EXPECT_LT(worst(c.narrow(1, 0, 6), expected), 1e-13);
  EXPECT_EQ(c.narrow(1, 6, 2).sum().item<double>(), 12.0);
}

TEST(Facade, AllFiniteFindsOneBadElement) {
  for (const DType dtype : {DType::Float, DType::Double, DType::BFloat16}) {
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      for (const std::int64_t at : {0, 15, 99999, 100002}) {
        Tensor t = normal({100003}, 1, dtype);
        ASSERT_TRUE(tensor::all_finite(t));
        t[at] = bad;
        EXPECT_FALSE(tensor::all_finite(t));
      }
    }
  }
  EXPECT_TRUE(tensor::all_finite(tensor::full({20}, 3e38, DType::Float)));
}

TEST(Facade, GradModeNests) {
  EXPECT_TRUE(tensor::grad_enabled());
  {
    const tensor::NoGrad off;
    EXPECT_FALSE(tensor::grad_enabled());
    const tensor::EnableGrad on;
    EXPECT_TRUE(tensor::grad_enabled());
  }
  EXPECT_TRUE(tensor::grad_enabled());
}

TEST(Parallel, EveryIndexAndTaskOnce) {
  tensor::set_num_threads(3);
  std::vector<std::atomic<int>> seen(1000);
  tensor::parallel_for(0, 1000, 7, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) ++seen[i];
  });
  tensor::parallel_tasks(1000, [&](tensor::TaskSource& source) {
    for (std::int64_t i = 0; source.next(i);) ++seen[i];
  });
  for (const auto& count : seen) EXPECT_EQ(count.load(), 2);
  EXPECT_THROW(
      tensor::parallel_for(
          0, 10, 1, [](std::int64_t, std::int64_t) { PENTATRON_THROW(kInternal, "inside"); }),
      Error);
  tensor::set_num_threads(1);
}

TEST(Precision, Policies) {
  EXPECT_EQ(precision_policy("fp64").statistics, DType::Double);
  EXPECT_EQ(precision_policy("fp32").parameter, DType::Float);
  const PrecisionPolicy bf16 = precision_policy("bf16");
  EXPECT_EQ(bf16.parameter, DType::BFloat16);
  EXPECT_EQ(bf16.compute, DType::BFloat16);
  EXPECT_EQ(bf16.main_parameter, DType::Float);
  EXPECT_EQ(bf16.logits, DType::BFloat16);
  EXPECT_EQ(precision_policy("bf16_state").state, DType::BFloat16);
  EXPECT_THROW((void)precision_policy("fp8"), Error);
}

TEST(Random, HiddenDropoutMaskIsTheDocumentedOne) {
  const RngSite site = make_site(1234, "decoder.layers.3.mlp.dropout");
  EXPECT_NE(site.key, make_site(1235, "decoder.layers.3.mlp.dropout").key);
  EXPECT_NE(site.key, make_site(1234, "decoder.layers.4.mlp.dropout").key);
  const std::vector<std::int64_t> samples{5, 5, (std::int64_t{3} << 32) + 1}, index{0, 1, 77};
  const double p = 0.1;
  const Tensor whole = tensor::dropout_keep_mask(site, p, tensor::from_vector(samples),
                                                 tensor::from_vector(index), 0, 4099);
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 4099; ++c) {
      const PhiloxWords words =
          philox4x32_10({{static_cast<std::uint32_t>(c / 8), static_cast<std::uint32_t>(index[r]),
                          static_cast<std::uint32_t>(samples[r] & 0xffffffff),
                          static_cast<std::uint32_t>(samples[r] >> 32)}},
                        {{static_cast<std::uint32_t>(site.key & 0xffffffff),
                          static_cast<std::uint32_t>(site.key >> 32)}});
      const std::uint32_t draw = (words.v[(c % 8) / 2] >> (16 * (c % 2))) & 0xffff;
      ASSERT_EQ(whole[r].data_ptr<std::uint8_t>()[c], draw >= 6554 ? 1 : 0) << r << ' ' << c;
    }
  }
  EXPECT_NEAR(whole.to(DType::Double).mean().item<double>(), 0.9, 0.01);
  // A slice of channels and a slice of rows are the same draws.
  const Tensor part =
      tensor::dropout_keep_mask(site, p, tensor::from_vector(std::vector<std::int64_t>{samples[2]}),
                                tensor::from_vector(std::vector<std::int64_t>{77}), 1003, 222);
  EXPECT_TRUE(part[0].equal(whole[2].narrow(0, 1003, 222)));
  EXPECT_THROW((void)tensor::dropout_threshold(1.0), Error);
  EXPECT_THROW((void)tensor::dropout_threshold(-0.1), Error);
}

TEST(Random, InitialValuesDoNotDependOnTheCut) {
  const Shape logical{6, 5, 7};
  Tensor whole = tensor::empty(logical, DType::Double);
  tensor::fill_normal_keyed(whole, 9, "decoder.weight", 0.02, logical, {0, 0, 0});
  EXPECT_EQ(whole[2][3][4].item<double>(),
            0.02 * philox_normal(9, fnv1a64("decoder.weight"), (2 * 5 + 3) * 7 + 4));
  Tensor box = tensor::empty({3, 2, 4}, DType::Double);
  tensor::fill_normal_keyed(box, 9, "decoder.weight", 0.02, logical, {2, 3, 1});
  EXPECT_TRUE(box.equal(whole.narrow(0, 2, 3).narrow(1, 3, 2).narrow(2, 1, 4)));
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    Tensor rounded = tensor::empty(logical, dtype);
    tensor::fill_normal_keyed(rounded, 9, "decoder.weight", 0.02, logical, {0, 0, 0});
    EXPECT_TRUE(rounded.equal(whole.to(dtype)));
  }
  Tensor other = tensor::empty(logical, DType::Double);
  tensor::fill_normal_keyed(other, 9, "decoder.bias", 0.02, logical, {0, 0, 0});
  EXPECT_FALSE(other.equal(whole));
  EXPECT_THROW(tensor::fill_normal_keyed(box, 9, "w", 1.0, logical, {4, 3, 1}), Error);
  Tensor many = tensor::empty({200000}, DType::Double);
  tensor::fill_normal_keyed(many, 1, "many", 2.0, {200000}, {0});
  EXPECT_NEAR(many.mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(many.std().item<double>(), 2.0, 0.02);
}

TEST(Saved, KeepsMemoryAndNoGraph) {
  const Tensor x = normal({3}, 1).set_requires_grad(true);
  Saved saved(x.mul(2.0));
  EXPECT_FALSE(saved.get().requires_grad());
  saved.release();
  EXPECT_FALSE(saved.defined());
  EXPECT_THROW((void)saved.get(), Error);
  EXPECT_FALSE(Saved(Tensor()).defined());
}

TEST(MemoryMeter, CountsEveryThread) {
  tensor::MemoryMeter meter;
  EXPECT_THROW(tensor::MemoryMeter(), Error);
  constexpr std::int64_t kBytes = 4 << 20;
  Tensor kept;
  std::thread([&] {
    kept = tensor::empty({kBytes}, DType::Byte);
    const Tensor gone = tensor::empty({kBytes}, DType::Byte);
  }).join();
  EXPECT_GE(meter.current_bytes(), kBytes);
  EXPECT_LT(meter.current_bytes(), kBytes + 65536);
  EXPECT_GE(meter.peak_bytes(), 2 * kBytes);
  EXPECT_LT(meter.peak_bytes(), 2 * kBytes + 65536);
  EXPECT_GE(meter.largest_allocation(), kBytes);
  kept = Tensor();
  EXPECT_EQ(meter.current_bytes(), 0);
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(), 0);
  EXPECT_GT(tensor::resident_bytes(), 1 << 20);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(MemoryMeter, BlocksAreUsedAgain) {
  tensor::MemoryMeter meter;
  Tensor first = tensor::empty({300000}, DType::Byte);
  const void* block = first.const_data_ptr();
  const std::int64_t held = meter.current_bytes();
  first = Tensor();
  EXPECT_EQ(meter.current_bytes(), 0);
  // Another size gets another block, the same size up to 64 bytes the same.
  const Tensor other = tensor::empty({500000}, DType::Byte);
  EXPECT_NE(other.const_data_ptr(), block);
  const Tensor second = tensor::empty({299990}, DType::Byte);
  EXPECT_EQ(second.const_data_ptr(), block);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
  EXPECT_GE(meter.current_bytes(), held + 500000);
}

TEST(MemoryMeter, LargeBlocksGoBackToTheSystem) {
  tensor::MemoryMeter meter;
  const std::int64_t before = tensor::resident_bytes();
  for (int i = 0; i < 4; ++i) {
    const Tensor large = tensor::ones({std::int64_t{64} << 20}, DType::Byte);
    EXPECT_GE(tensor::resident_bytes(), before + (std::int64_t{60} << 20));
  }
  EXPECT_LT(tensor::resident_bytes(), before + (std::int64_t{32} << 20));
}
#endif

// The flags (proc(5), VmFlags) of the mapping that holds this address; empty: the kernel tells
// none.
std::string mapping_flags(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      here = begin <= wanted && wanted < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

TEST(MemoryMeter, LargeBlocksAskForLargePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  const tensor::MemoryMeter meter;
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  const Tensor large = tensor::empty({kBytes}, DType::Byte);
  const std::string flags = mapping_flags(large.data_ptr<std::uint8_t>() + kBytes / 2);
  if (flags.empty()) GTEST_SKIP() << "this kernel tells no flags of mappings";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
}

}  // namespace
}  // namespace pentatron
