// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pentatron/ops/narrow_adamw.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

using testing::bit_equal;
using testing::normal;

const Device kCpu("cpu"), kGpu("cuda:0");

AdamScalars scalars(Device device, double skip) {
  const auto scalar = [&](double value) { return tensor::scalar(value, DType::Double, device); };
  return {.lr = scalar(3e-3),
          .step = scalar(7),
          .grad_scale = scalar(0.37),
          .weight_decay = scalar(0.5),
          .skip = scalar(skip),
          .decoupled_lr = scalar(0.02),
          .width_lr = scalar(1e-3)};
}

struct Dtypes {
  DType param, first, second, grad;
};

// More slices than one launch takes, of odd sizes, places and alignments.
std::vector<NarrowSegment> make_segments(const Dtypes& dtypes, Device device) {
  std::vector<NarrowSegment> segments;
  for (int i = 0; i < 530; ++i) {
    const std::int64_t count = i % 50 == 49 ? 40000 + i : i * 7 % 301;
    const std::int64_t shift = i % 3;  // elements before the slice in its memory
    const auto make = [&](int salt, DType dtype, bool square) {
      Tensor t = normal({count + shift}, salt + i, DType::Float, salt == 1 ? 1.0 : 0.1);
      if (square) t = t.square();
      return t.to(dtype).to(device).clone().narrow(0, shift, count);
    };
    const std::int64_t width = i % 4 == 0 ? 64 : 1 + i % 37;
    segments.push_back({.update = {.param = make(1, dtypes.param, false),
                                   .grad = make(2, dtypes.grad, false),
                                   .first = make(3, dtypes.first, false),
                                   .second = make(4, dtypes.second, true),
                                   .decays = i % 2 == 0,
                                   .rate = static_cast<RateClass>(i % 3),
                                   .eps_factor = i == 4 ? 0.25 : 1.0},
                        .place = {.first = i % 5 == 0 ? 0 : i,
                                  .width = width,
                                  .logical_width = i % 2 == 0 ? width : width + 24,
                                  .row_offset = i,
                                  .column_offset = i % 2 == 0 ? 0 : 8},
                        .streams = {.param = 3U * static_cast<std::uint32_t>(i),
                                    .first = 3U * static_cast<std::uint32_t>(i) + 1,
                                    .second = 3U * static_cast<std::uint32_t>(i) + 2}});
  }
  return segments;
}

TEST(NarrowAdamWOnGpu, EqualsTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  const DType kinds[] = {DType::Float, DType::BFloat16};
  for (const DType param : kinds) {
    for (const DType first : kinds) {
      for (const DType second : kinds) {
        const Dtypes dtypes{param, first, second, first};
        const auto on_host = make_segments(dtypes, kCpu), on_gpu = make_segments(dtypes, kGpu);
        narrow_adamw_step(on_host, scalars(kCpu, 0), {.weight_decay = 0.5}, 9);
        narrow_adamw_step(on_gpu, scalars(kGpu, 0), {.weight_decay = 0.5}, 9);
        for (std::size_t i = 0; i < on_host.size(); ++i) {
          EXPECT_TRUE(bit_equal(on_host[i].update.param, on_gpu[i].update.param)) << i;
          EXPECT_TRUE(bit_equal(on_host[i].update.first, on_gpu[i].update.first)) << i;
          EXPECT_TRUE(bit_equal(on_host[i].update.second, on_gpu[i].update.second)) << i;
        }
      }
    }
  }
}

TEST(NarrowAdamWOnGpu, ASkippedStepChangesNothing) {
  PENTATRON_NEEDS_GPUS(1);
  const Dtypes dtypes{DType::BFloat16, DType::BFloat16, DType::BFloat16, DType::BFloat16};
  const auto before = make_segments(dtypes, kGpu), after = make_segments(dtypes, kGpu);
  narrow_adamw_step(after, scalars(kGpu, 1), {}, 9);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(bit_equal(before[i].update.param, after[i].update.param)) << i;
    EXPECT_TRUE(bit_equal(before[i].update.second, after[i].update.second)) << i;
  }
}

}  // namespace
}  // namespace pentatron::ops
