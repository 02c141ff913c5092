// SPDX-License-Identifier: Apache-2.0
// Attention in parts, as context-parallel ranks compute it, on a GPU against the CPU in fp64:
// segments without queries or without keys, merged outputs, gradients from a merged log-sum-exp.
#include <limits>

#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/gpu_test_support.h"

namespace pentatron::ops {
namespace {

using testing::expect_close;
using testing::normal;

const Device kCpu("cpu"), kGpu("cuda:0");

struct Part {
  std::vector<AttentionSegment> segments;
  std::int64_t k_begin, k_len;  // of the keys that it sees
  bool causal;
};

struct Inputs {
  Tensor q_tnd, k_sgd, v_sgd, dout_tnd;

  Inputs to(Device device, DType dtype) const {
    return {q_tnd.to(device, dtype), k_sgd.to(device, dtype), v_sgd.to(device, dtype),
            dout_tnd.to(device, dtype)};
  }
};

struct Result {
  AttentionOutput merged;
  Tensor dq_tnd, dk_sgd, dv_sgd;
};

// All parts one after another on one device.
Result run(const Inputs& in, const std::vector<Part>& parts, DType statistics, bool alibi,
           std::int64_t window) {
  const Device device = in.q_tnd.device();
  const auto plan_of = [&](const Part& part) {
    const AttentionSegmentsPtr rows = make_segments(part.segments, nullptr, nullptr);
    AttentionOptions options;
    options.scale = 0.2;
    options.causal = part.causal;
    options.partial = true;
    options.statistics = statistics;
    options.window = window;
    if (alibi) {
      options.alibi_n = tensor::from_vector(alibi_slopes(in.q_tnd.size(1))).to(device);
    }
    return AttentionPlan{.rows = device.is_cpu() ? rows : to_device(*rows, device),
                         .options = options};
  };
  const auto keys_of = [](const Tensor& x, const Part& part) {
    return x.narrow(0, part.k_begin, part.k_len);
  };
  Result result;
  std::vector<std::vector<Tensor>> library;
  for (const Part& part : parts) {
    AttentionOutput out = attention_forward(plan_of(part), in.q_tnd, keys_of(in.k_sgd, part),
                                            keys_of(in.v_sgd, part));
    library.push_back(out.library);
    merge_attention(result.merged, out);
  }
  std::vector<Tensor> dk, dv;
  AttentionOutput whole = result.merged;
  whole.out_tnd = whole.out_tnd.to(in.q_tnd.scalar_type());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    whole.library = library[i];
    const AttentionGradients grads =
        attention_backward(plan_of(parts[i]), in.q_tnd, keys_of(in.k_sgd, parts[i]),
                           keys_of(in.v_sgd, parts[i]), whole, in.dout_tnd);
    const Tensor dq = grads.dq_tnd.to(kCpu, DType::Double);
    result.dq_tnd = result.dq_tnd.defined() ? result.dq_tnd.add(dq) : dq;
    dk.push_back(grads.dk_tgd.to(kCpu, DType::Double));
    dv.push_back(grads.dv_tgd.to(kCpu, DType::Double));
  }
  result.dk_sgd = tensor::cat(dk, 0);
  result.dv_sgd = tensor::cat(dv, 0);
  return result;
}

void expect_equal_to_the_cpu(DType dtype, double tolerance, bool alibi = false,
                             std::int64_t window = -1) {
  constexpr std::int64_t kQueries = 100, kKeys = 136, kHeads = 4, kGroups = 2, kChannels = 64;
  // Rounded once, so that both devices start from the same values.
  const auto values = [&](std::int64_t rows, std::int64_t heads, std::uint64_t seed) {
    return normal({rows, heads, kChannels}, seed).to(dtype).to(DType::Double);
  };
  const Inputs in{values(kQueries, kHeads, 1), values(kKeys, kGroups, 2), values(kKeys, kGroups, 3),
                  values(kQueries, kHeads, 4)};
  const std::vector<Part> parts = {
      // Forty queries see nothing here, and twenty keys are seen by nobody.
      {.segments = {{0, 40, 0, 0}, {40, 0, 0, 20}, {40, 60, 20, 60}},
       .k_begin = 0,
       .k_len = 80,
       .causal = true},
      // All queries see all of these.
      {.segments = {{0, 100, 0, 56, window < 0 ? 0 : 30}},
       .k_begin = 80,
       .k_len = 56,
       .causal = false}};
  const DType statistics = dtype == DType::Double ? DType::Double : DType::Float;
  const Result expected = run(in, parts, DType::Double, alibi, window);
  const Result got = run(in.to(kGpu, dtype), parts, statistics, alibi, window);
  const auto host = [](const Tensor& x) { return x.to(kCpu, DType::Double); };
  expect_close(host(got.merged.out_tnd), expected.merged.out_tnd, tolerance, "output");
  expect_close(host(got.merged.lse_nt), expected.merged.lse_nt, tolerance, "log-sum-exp");
  expect_close(got.dq_tnd, expected.dq_tnd, tolerance, "gradient of q");
  expect_close(got.dk_sgd, expected.dk_sgd, tolerance, "gradient of k");
  expect_close(got.dv_sgd, expected.dv_sgd, tolerance, "gradient of v");
  // A part of which some queries see nothing, by itself.
  const Result lonely = run(in.to(kGpu, dtype), {parts[0]}, statistics, alibi, window);
  EXPECT_EQ(host(lonely.merged.out_tnd).narrow(0, 0, 40).abs().max().item().toDouble(), 0.0);
  const Tensor unseen = host(lonely.merged.lse_nt).narrow(1, 0, 40);
  EXPECT_EQ(unseen.max().item().toDouble(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(lonely.dk_sgd.narrow(0, 0, 20).abs().max().item().toDouble(), 0.0);
  EXPECT_EQ(lonely.dv_sgd.narrow(0, 0, 20).abs().max().item().toDouble(), 0.0);
}

TEST(AttentionInPartsOnGpu, Fp64) {
  PENTATRON_NEEDS_GPUS(1);
  expect_equal_to_the_cpu(DType::Double, 1e-12);
}

TEST(AttentionInPartsOnGpu, Fp32) {
  PENTATRON_NEEDS_GPUS(1);
  expect_equal_to_the_cpu(DType::Float, 1e-5);
}

// The fused kernels.
TEST(AttentionInPartsOnGpu, Bf16) {
  PENTATRON_NEEDS_GPUS(1);
  expect_equal_to_the_cpu(DType::BFloat16, 2e-2);
}

TEST(AttentionInPartsOnGpu, Alibi) {
  PENTATRON_NEEDS_GPUS(1);
  expect_equal_to_the_cpu(DType::Float, 1e-5, /*alibi=*/true);
}

// The second part's keys stand further away than the fused kernels know: some queries see them all,
// some a few, some none.
TEST(AttentionInPartsOnGpu, Window) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t window : {0, 20, 50, 1000}) {
    expect_equal_to_the_cpu(DType::Double, 1e-12, false, window);
    expect_equal_to_the_cpu(DType::Float, 1e-5, false, window);
    expect_equal_to_the_cpu(DType::BFloat16, 2e-2, false, window);
  }
}

}  // namespace
}  // namespace pentatron::ops
