// SPDX-License-Identifier: Apache-2.0
// Every differentiable op on a GPU against the fp64 reference that the CPU implementation is held
// to (test_cases.h), and against itself.
#include <fmt/format.h>

#include "pentatron/base/error.h"
#include "pentatron/ops/test_cases.h"
#include "pentatron/tensor/gpu_test_support.h"

namespace pentatron::ops {
namespace {

using testing::OpCase;
using testing::Tensors;
using testing::TestWeight;

const Device kGpu("cuda:0");

class EveryOpOnGpu : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    PENTATRON_NEEDS_GPUS(1);
    tensor::use_device(kGpu);
  }
};

TEST_P(EveryOpOnGpu, EqualsReferenceInFp64) {
  testing::compare(GetParam(), DType::Double, DType::Double, 1e-12, kGpu);
}
TEST_P(EveryOpOnGpu, EqualsReferenceInFp32) {
  testing::compare(GetParam(), DType::Float, DType::Float, 3e-6, kGpu);
}
TEST_P(EveryOpOnGpu, EqualsReferenceInBf16) {
  testing::compare(GetParam(), DType::BFloat16, DType::Float, 0.02, kGpu);
}
TEST_P(EveryOpOnGpu, WritesBf16Slots) {
  testing::compare(GetParam(), DType::BFloat16, DType::BFloat16, 0.02, kGpu);
}
// fp16 has 11 bits.
TEST_P(EveryOpOnGpu, EqualsReferenceInFp16) {
  testing::compare(GetParam(), DType::Half, DType::Float, 0.0025, kGpu);
}

// Two backwards into one slot: the second adds. And the same work twice gives the same bits (but
// for the library's attention gradient, which has its own test).
TEST_P(EveryOpOnGpu, AccumulatesAndRepeats) {
  const OpCase& c = GetParam();
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    const auto run = [&](int steps) {
      Tensors results;
      std::vector<TestWeight> weights;
      std::uint64_t seed = 100;
      Tensors inputs;
      for (const Shape& shape : c.inputs) {
        inputs.push_back(testing::leaf(testing::normal(shape, seed++).to(dtype).to(kGpu)));
      }
      for (const Shape& shape : c.weights) {
        weights.emplace_back(testing::normal(shape, seed++).to(dtype).to(kGpu), DType::Float);
      }
      for (int step = 0; step < steps; ++step) {
        const Tensor out = c.op(inputs, weights);
        run_backward(out, testing::normal(tensor::shape_of(out), 7).to(dtype).to(kGpu));
        if (step == 0) results.push_back(out.detach());
      }
      for (const TestWeight& weight : weights) results.push_back(weight.grad());
      if (c.name.rfind("attention", 0) != 0) {
        for (const Tensor& input : inputs) results.push_back(input.grad());
      }
      return results;
    };
    const Tensors once = run(1), again = run(1), twice = run(2);
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_TRUE(testing::bit_equal(once[i], again[i])) << c.name << ", result " << i;
    }
    for (std::size_t i = 0; i < c.weights.size(); ++i) {
      testing::expect_close(twice[1 + i], once[1 + i].mul(2.0), 1e-6, c.name + " two backwards");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, EveryOpOnGpu, ::testing::ValuesIn(testing::weight_cases()),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Plain, EveryOpOnGpu, ::testing::ValuesIn(testing::plain_cases()),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Forms, EveryOpOnGpu, ::testing::ValuesIn(testing::attention_form_cases()),
                         testing::case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, EveryOpOnGpu, ::testing::ValuesIn(testing::shape_cases()),
                         testing::case_name);

INSTANTIATE_TEST_SUITE_P(Dropout, EveryOpOnGpu,
                         ::testing::ValuesIn(testing::attention_dropout_cases()),
                         testing::case_name);

TEST(AttentionOnGpu, RefusesBatchesThatStayedOnTheHost) {
  PENTATRON_NEEDS_GPUS(1);
  const Tensor x = testing::normal({4, 2, 8}, 1, DType::Float).to(kGpu);
  const SequenceLayout host({.boundaries = {0, 4}});
  EXPECT_THROW((void)attention(x, x, x, host, {}), Error);
  EXPECT_NO_THROW((void)attention(x, x, x, host.to(kGpu), {}));
}

// Also beside the fused kernels, whose output it does not change.
TEST(AttentionOnGpu, LargestLogitEqualsTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [dtype, window] :
       {std::pair{DType::Float, -1}, {DType::BFloat16, -1}, {DType::BFloat16, 3}}) {
    const Tensor q = testing::normal({40, 4, 64}, 1).to(dtype),
                 k = testing::normal({40, 2, 64}, 2).to(dtype),
                 v = testing::normal({40, 2, 64}, 3).to(dtype);
    const SequenceLayout layout({.boundaries = {0, 20, 40}});
    const auto largest = [&](Device device, double before) {
      const Tensor logit = tensor::full({}, before, kAccumulationDType, device);
      AttentionOptions options{.scale = 0.25, .max_logit = logit, .window = window};
      const SequenceLayout there = device.is_cpu() ? layout : layout.to(device);
      const Tensor with = attention(q.to(device), k.to(device), v.to(device), there, options);
      options.max_logit = Tensor();
      const Tensor without = attention(q.to(device), k.to(device), v.to(device), there, options);
      EXPECT_TRUE(testing::bit_equal(with, without));
      return logit.item<double>();
    };
    const auto of_heads = [&](Device device) {
      const Tensor logits = tensor::full({4}, -1e300, kAccumulationDType, device);
      const AttentionOptions options{.scale = 0.25, .max_logit = logits, .window = window};
      const SequenceLayout there = device.is_cpu() ? layout : layout.to(device);
      (void)attention(q.to(device), k.to(device), v.to(device), there, options);
      return logits.cpu();
    };
    const Tensor heads = of_heads(kCpu), on_gpu = of_heads(kGpu);
    EXPECT_LE(on_gpu.sub(heads).abs().max().item<double>(), 1e-5 * heads.max().item<double>());
    const double expected = largest(kCpu, -1e300);
    EXPECT_EQ(heads.max().item<double>(), expected);
    EXPECT_NEAR(largest(kGpu, -1e300), expected, 1e-5 * expected) << tensor::dtype_name(dtype);
    EXPECT_EQ(largest(kGpu, 1e6), 1e6);
  }
}

TEST(AttentionOnGpu, CachedRowsEqualThoseOfTheWhole) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [dtype, d, tolerance] : {std::tuple{DType::Double, 6, 1e-13},
                                            {DType::Float, 6, 2e-6},
                                            {DType::Float, 64, 2e-6},
                                            {DType::BFloat16, 64, 0.01},
                                            {DType::BFloat16, 6, 0.01}}) {
    const Tensor q = testing::normal({300, 4, d}, 1).to(dtype),
                 k = testing::normal({300, 2, d}, 2).to(dtype),
                 v = testing::normal({300, 2, d}, 3).to(dtype);
    const SequenceLayout layout({.boundaries = {0, 300}});
    for (const auto& [window, softcap, sinks] :
         {std::tuple{-1, 0.0, false}, {40, 0.0, true}, {0, 3.0, false}}) {
      AttentionOptions options{.scale = 0.25};
      options.window = window;
      options.softcap = softcap;
      if (sinks) options.sink_n = testing::normal({4}, 4);
      const Tensor whole = attention(q, k, v, layout, options);
      if (sinks) options.sink_n = options.sink_n.to(kGpu);
      for (const auto& [begin, end] :
           {std::pair{299, 300}, {0, 300}, {290, 300}, {0, 1}, {130, 131}, {100, 271}}) {
        const Tensor part = attention_with_cache(q.to(kGpu).narrow(0, begin, end - begin),
                                                 k.to(kGpu).narrow(0, 0, end),
                                                 v.to(kGpu).narrow(0, 0, end), options);
        EXPECT_TRUE(part.is_cuda());
        testing::expect_close(part, whole.narrow(0, begin, end - begin), tolerance,
                              "rows " + std::to_string(begin) + " to " + std::to_string(end));
      }
    }
  }
}

// A token that sees itself alone hands on its value, and no gradient reaches q and k.
TEST(AttentionOnGpu, SegmentsOfOneTokenAndOfNone) {
  PENTATRON_NEEDS_GPUS(1);
  const SequenceLayout layout = SequenceLayout({.boundaries = {0, 1, 1, 2, 3}}).to(kGpu);
  for (const DType dtype : {DType::BFloat16, DType::Float}) {
    const auto made = [&](std::int64_t heads, std::uint64_t seed) {
      return testing::leaf(testing::normal({3, heads, 64}, seed).to(dtype).to(kGpu));
    };
    const Tensor q = made(4, 1), k = made(2, 2), v = made(2, 3);
    const Tensor g = testing::normal({3, 4, 64}, 4).to(dtype).to(kGpu);
    const Tensor out = attention(q, k, v, layout, {.scale = 0.2});
    run_backward(out, g);
    testing::expect_close(out.detach(), v.detach().repeat_interleave(2, 1), 1e-6, "output");
    const Tensor sums = g.to(DType::Double).view({3, 2, 2, 64}).sum(IntList{2});
    testing::expect_close(v.grad(), sums, 0.01, "gradient of v");
    EXPECT_LT(q.grad().abs().max().item<double>(), 0.02);
    EXPECT_LT(k.grad().abs().max().item<double>(), 0.02);
  }
}

// q, k, v as parts of one fused tensor, as the attention block makes them: no copies that lose
// gradients, for the fused kernels and the batched products.
TEST(AttentionOnGpu, TakesPartsOfAFusedTensor) {
  PENTATRON_NEEDS_GPUS(1);
  constexpr std::int64_t kTokens = 90;
  const SequenceLayout layout({.boundaries = {0, 1, 40, kTokens}});
  for (const auto& [dtype, d, tolerance] : {std::tuple{DType::BFloat16, 64, 0.02},
                                            {DType::BFloat16, 20, 0.02},
                                            {DType::Float, 64, 3e-6}}) {
    const Tensor value = testing::normal({kTokens, 6, d}, 1).to(dtype);
    const Tensor g = testing::normal({kTokens, 4, d}, 2).to(dtype);
    const auto run = [&, scale = 0.2](const Tensor& fused, const Tensor& grad) {
      const Tensor out =
          attention(fused.narrow(1, 0, 4), fused.narrow(1, 4, 1), fused.narrow(1, 5, 1),
                    layout.to(fused.device()), {.scale = scale});
      run_backward(out, grad);
      return out.detach();
    };
    const Tensor host = testing::leaf(value.to(DType::Double)), gpu = testing::leaf(value.to(kGpu));
    const Tensor expected = run(host, g.to(DType::Double));
    const Tensor out = run(gpu, g.to(kGpu));
    testing::expect_close(out, expected, tolerance, "output");
    testing::expect_close(gpu.grad(), host.grad(), tolerance, "gradient of the fused tensor");
  }
}

// Values narrower and wider than queries and keys, which the fused kernels get with zeros: segments
// of one length, as cuDNN takes them, and of several; and cached keys.
TEST(AttentionOnGpu, ValuesOfAnotherSizeEqualTheHosts) {
  PENTATRON_NEEDS_GPUS(1);
  constexpr std::int64_t kTokens = 128;
  for (const std::vector<std::int64_t>& boundaries :
       {std::vector<std::int64_t>{0, 64, kTokens}, {0, 1, 40, kTokens}}) {
    const SequenceLayout layout({.boundaries = boundaries});
    for (const auto& [dtype, d, v_d, tolerance] : {std::tuple{DType::BFloat16, 192, 128, 0.02},
                                                   {DType::BFloat16, 24, 16, 0.02},
                                                   {DType::BFloat16, 64, 128, 0.02},
                                                   {DType::BFloat16, 20, 12, 0.02},
                                                   {DType::Float, 24, 16, 3e-6}}) {
      const Tensor q = testing::normal({kTokens, 4, d}, 1).to(dtype);
      const Tensor k = testing::normal({kTokens, 4, d}, 2).to(dtype);
      // Behind other channels of its head, as multi-latent attention makes them.
      const Tensor kv = testing::normal({kTokens, 4, 8 + v_d}, 3).to(dtype);
      const Tensor g = testing::normal({kTokens, 4, v_d}, 4).to(dtype);
      const auto run = [&, v_d = v_d](Device device, DType computed) {
        std::vector<Tensor> inputs;
        for (const Tensor& t : {q, k, kv}) {
          inputs.push_back(testing::leaf(t.to(device).to(computed)));
        }
        const Tensor out = attention(inputs[0], inputs[1], inputs[2].narrow(2, 8, v_d),
                                     layout.to(device), {.scale = 0.1});
        run_backward(out, g.to(device).to(computed));
        return std::vector<Tensor>{out.detach(), inputs[0].grad(), inputs[1].grad(),
                                   inputs[2].grad()};
      };
      const std::vector<Tensor> expected = run(kCpu, DType::Double), got = run(kGpu, dtype);
      for (std::size_t i = 0; i < got.size(); ++i) {
        testing::expect_close(got[i], expected[i], tolerance,
                              fmt::format("{} and {} channels, result {}", d, v_d, i));
      }
      const Tensor v = kv.narrow(2, 8, v_d);
      testing::expect_close(attention_with_cache(q.to(kGpu).narrow(0, 100, 1), k.to(kGpu),
                                                 v.to(kGpu), {.scale = 0.1}),
                            attention_with_cache(q.narrow(0, 100, 1), k, v, {.scale = 0.1}),
                            tolerance, "cached");
    }
  }
}

// Cross attention as the fused kernels see it: own boundaries for queries and keys, segments
// without keys or queries, queries before the first visible key, boundaries padded for a recorded
// step.
TEST(AttentionOnGpu, CrossAttentionEqualsTheHosts) {
  PENTATRON_NEEDS_GPUS(1);
  const SequenceLayout queries({.boundaries = {0, 70, 90, 90, 99, 130}});
  const SequenceLayout keys({.boundaries = {0, 200, 200, 210, 213, 300}});
  const SequenceLayout cross = queries.with_keys(keys);
  for (const bool causal : {false, true}) {
    for (const auto& [dtype, d, tolerance] : {std::tuple{DType::BFloat16, 64, 0.02},
                                              {DType::BFloat16, 20, 0.02},
                                              {DType::Float, 64, 3e-6}}) {
      const Tensor q = testing::normal({130, 4, d}, 1).to(dtype);
      const Tensor k = testing::normal({300, 2, d}, 2).to(dtype);
      const Tensor v = testing::normal({300, 2, d}, 3).to(dtype);
      const Tensor g = testing::normal({130, 4, d}, 4).to(dtype);
      const auto run = [&, causal = causal](const SequenceLayout& layout, Device device,
                                            DType computed) {
        std::vector<Tensor> inputs;
        for (const Tensor& t : {q, k, v}) {
          inputs.push_back(testing::leaf(t.to(device).to(computed)));
        }
        const Tensor out =
            attention(inputs[0], inputs[1], inputs[2], layout, {.scale = 0.2, .causal = causal});
        run_backward(out, g.to(device).to(computed));
        return std::vector<Tensor>{out.detach(), inputs[0].grad(), inputs[1].grad(),
                                   inputs[2].grad()};
      };
      const std::vector<Tensor> expected = run(cross, kCpu, DType::Double);
      for (const SegmentPadding& padding : {SegmentPadding{}, {.segments = 9, .length = 256}}) {
        const std::vector<Tensor> got = run(cross.to(kGpu, padding), kGpu, dtype);
        for (std::size_t i = 0; i < got.size(); ++i) {
          testing::expect_close(got[i], expected[i], tolerance,
                                "result " + std::to_string(i) + (causal ? ", causal" : ""));
        }
      }
    }
  }
}

}  // namespace
}  // namespace pentatron::ops
