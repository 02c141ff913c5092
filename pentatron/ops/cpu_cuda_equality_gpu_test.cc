// SPDX-License-Identifier: Apache-2.0
// What the CPU and CUDA implementations must give bit for bit, and ops without a graph: keyed
// random numbers, optimizer steps, sums, pieces of the loss, products.
#include <fmt/format.h>

#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/ops/activation.h"
#include "pentatron/ops/adamw.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/cross_entropy.h"
#include "pentatron/ops/embedding.h"
#include "pentatron/ops/norm.h"
#include "pentatron/ops/norm_test_support.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/ops/testing.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/random_table.h"

namespace pentatron::ops {
namespace {

using testing::bit_equal;
using testing::expect_close;
using testing::normal;

const Device kCpu("cpu"), kGpu("cuda:0");

Tensor ids(const std::vector<std::int64_t>& values) { return tensor::from_vector(values); }

TEST(KeyedOnGpu, PhiloxGivesThePublishedWords) {
  const std::vector<std::int32_t> counters{0,
                                           0,
                                           0,
                                           0,
                                           -1,
                                           -1,
                                           -1,
                                           -1,
                                           static_cast<std::int32_t>(0x243f6a88),
                                           static_cast<std::int32_t>(0x85a308d3),
                                           static_cast<std::int32_t>(0x13198a2e),
                                           static_cast<std::int32_t>(0x03707344)};
  const std::vector<std::int32_t> keys{
      0, 0, -1, -1, static_cast<std::int32_t>(0xa4093822), static_cast<std::int32_t>(0x299f31d0)};
  const std::uint32_t expected[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  PENTATRON_NEEDS_GPUS(1);
  for (const Device device : {kCpu, kGpu}) {
    const Tensor words = tensor::random_table(device)
                             .philox_words(tensor::from_vector(counters).view({3, 4}).to(device),
                                           tensor::from_vector(keys).view({3, 2}).to(device))
                             .cpu();
    for (int i = 0; i < 3; ++i) {
      for (int w = 0; w < 4; ++w) {
        EXPECT_EQ(static_cast<std::uint32_t>(words.data_ptr<std::int32_t>()[4 * i + w]),
                  expected[i][w])
            << device.str() << ", vector " << i << ", word " << w;
      }
    }
  }
}

TEST(KeyedOnGpu, DropoutMasksEqualTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  const RngSite site = make_site(1234, "decoder.layers.3.mlp.dropout");
  for (const std::int64_t rows : {1, 7, 70000}) {
    std::vector<std::int64_t> samples, index;
    for (std::int64_t r = 0; r < rows; ++r) {
      samples.push_back((r % 5 == 0 ? std::int64_t{3} << 33 : 0) + r / 2);
      index.push_back(r * 3 % 4099);
    }
    const std::int64_t widest = rows > 1000 ? 40 : 4100;
    for (const std::int64_t channels : {std::int64_t{1}, std::int64_t{8}, widest}) {
      for (const std::int64_t begin : {0, 3, 8, 4096}) {
        const Tensor s = ids(samples), t = ids(index);
        const Tensor host = tensor::dropout_keep_mask(site, 0.1, s, t, begin, channels);
        const Tensor gpu =
            tensor::dropout_keep_mask(site, 0.1, s.to(kGpu), t.to(kGpu), begin, channels);
        EXPECT_TRUE(bit_equal(host, gpu)) << rows << " rows, " << channels << " from " << begin;
        for (const DType dtype : {DType::Float, DType::BFloat16, DType::Double}) {
          const Tensor x = normal({rows, channels}, 5).to(dtype);
          EXPECT_TRUE(bit_equal(dropout(x, 0.1, site, s, t, begin),
                                dropout(x.to(kGpu), 0.1, site, s.to(kGpu), t.to(kGpu), begin)))
              << rows << " rows, " << channels << " from " << begin << " in "
              << tensor::dtype_name(dtype);
        }
      }
    }
  }
}

TEST(KeyedOnGpu, InitialValuesAndStochasticRoundingEqualTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  for (const DType dtype : {DType::Double, DType::Float, DType::BFloat16, DType::Half}) {
    for (const auto& [sizes, logical, offsets] :
         {std::tuple{Shape{500, 700}, Shape{5000, 900}, Shape{1100, 150}},
          {Shape{1000}, Shape{2000}, Shape{999}},
          {Shape{3, 20, 41}, Shape{30, 41, 70}, Shape{20, 21, 29}},
          {Shape{4, 0}, Shape{4, 9}, Shape{0, 0}}}) {
      const Tensor host = tensor::empty(sizes, dtype), gpu = tensor::empty(sizes, dtype, kGpu);
      tensor::fill_normal_keyed(host, 3, "part", 0.02, logical, offsets);
      tensor::fill_normal_keyed(gpu, 3, "part", 0.02, logical, offsets);
      EXPECT_TRUE(bit_equal(host, gpu)) << tensor::dtype_name(dtype);
      tensor::fill_uniform_keyed(host, 3, "part", 0.02, logical, offsets);
      tensor::fill_uniform_keyed(gpu, 3, "part", 0.02, logical, offsets);
      EXPECT_TRUE(bit_equal(host, gpu)) << tensor::dtype_name(dtype) << ", uniform";
    }
  }
  Tensor values = normal({10007}, 1, DType::Float, 3.0);
  values[5] = std::numeric_limits<float>::infinity();
  values[6] = -std::numeric_limits<float>::infinity();
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[8] = std::numeric_limits<float>::max();
  values[9] = 0.0F;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, (std::int64_t{1} << 34) + 3}) {
    Tensor host = tensor::empty({10007}, DType::BFloat16);
    Tensor gpu = tensor::empty({10007}, DType::BFloat16, kGpu);
    const std::int64_t step = (std::int64_t{1} << 33) + 12;
    tensor::stochastic_round_bf16_keyed(host, values, 99, step, 4, first);
    tensor::stochastic_round_bf16_keyed(gpu, values.to(kGpu), 99, step, 4, first);
    // Bits, for NaN equals nothing.
    EXPECT_TRUE(host.view(DType::Short).equal(gpu.cpu().view(DType::Short))) << first;
  }
}

// The gradient of an activation and the sums of it over rows, in one pass: the bits of two passes,
// whatever the memory held that is written.
TEST(ActivationOnGpu, BiasBackwardHasTheBitsOfTwoPasses) {
  PENTATRON_NEEDS_GPUS(1);
  const OpTable& table = op_table(kGpu);
  for (const Activation kind :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kSquaredRelu}) {
    for (const DType dtype : {DType::BFloat16, DType::Half, DType::Float, DType::Double}) {
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                          {7, 3},
                                          {65, 256},
                                          {1000, 248},
                                          {4097, 3072},
                                          {20000, 33},
                                          {0, 64}}) {
        SCOPED_TRACE(fmt::format("kind {}, {}, {} x {}", static_cast<int>(kind),
                                 tensor::dtype_name(dtype), rows, columns));
        const Tensor x = normal({rows, columns}, 1, DType::Double, 2.0).to(dtype).to(kGpu);
        const Tensor dy = normal({rows, columns}, 2).to(dtype).to(kGpu);
        const Tensor dx = table.activation_backward(kind, x, dy);
        tensor::full({2 * rows, columns}, std::nan(""), dtype, kGpu);  // given back at once
        const ActivationGradient fused = table.activation_bias_backward(kind, x, dy);
        EXPECT_TRUE(bit_equal(fused.dx_to, dx)) << "gradient";
        for (const DType slot_dtype : {DType::Float, DType::BFloat16}) {
          for (const bool accumulate : {false, true}) {
            const Tensor before = normal({columns}, 3).to(slot_dtype).to(kGpu);
            const GradSlot two{.buffer = before.clone(), .accumulate = accumulate};
            const GradSlot one{.buffer = before.clone(), .accumulate = accumulate};
            table.column_sums(dx, two);
            table.add_partial_sums(fused.partials_po, one);
            EXPECT_TRUE(bit_equal(one.buffer, two.buffer))
                << "sums into " << tensor::dtype_name(slot_dtype) << ", accumulate " << accumulate;
          }
        }
      }
    }
  }
}

struct AdamState {
  Tensor p, m, v;
  AdamState to(Device device) const { return {p.to(device), m.to(device), v.to(device)}; }
};

AdamScalars adam_scalars(Device device) {
  const auto scalar = [&](double value) { return tensor::scalar(value, DType::Double, device); };
  return {.lr = scalar(3e-3),
          .step = scalar(7),
          .grad_scale = scalar(0.37),
          .weight_decay = scalar(0.1),
          .skip = scalar(0)};
}

// Every element is rounded operation by operation on both devices.
TEST(OptimizerOnGpu, StepsEqualTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  const AdamOptions options{.weight_decay = 0.5};
  for (const std::int64_t count : {1, 3, 1024, 100003}) {
    for (const DType grad_dtype : {DType::Float, DType::BFloat16}) {
      const AdamState start{normal({count}, 1, DType::Float), normal({count}, 2, DType::Float, 0.1),
                            normal({count}, 3, DType::Float, 0.1).square()};
      const Tensor grad = normal({count}, 4).to(grad_dtype);
      AdamState host = start.to(kCpu), gpu = start.to(kGpu);
      host = {host.p.clone(), host.m.clone(), host.v.clone()};
      adamw_step(host.p, grad, host.m, host.v, adam_scalars(kCpu), options);
      adamw_step(gpu.p, grad.to(kGpu), gpu.m, gpu.v, adam_scalars(kGpu), options);
      EXPECT_TRUE(bit_equal(host.p, gpu.p)) << count;
      EXPECT_TRUE(bit_equal(host.m, gpu.m)) << count;
      EXPECT_TRUE(bit_equal(host.v, gpu.v)) << count;
      for (const double momentum : {0.0, 0.9}) {
        AdamState a = start.to(kCpu), b = start.to(kGpu);
        a = {a.p.clone(), a.m.clone(), a.v.clone()};
        sgd_step(a.p, grad, a.m, adam_scalars(kCpu), momentum, 0.5);
        sgd_step(b.p, grad.to(kGpu), b.m, adam_scalars(kGpu), momentum, 0.5);
        EXPECT_TRUE(bit_equal(a.p, b.p)) << count << ", momentum " << momentum;
        EXPECT_TRUE(bit_equal(a.m, b.m)) << count << ", momentum " << momentum;
      }
    }
  }
}

// More slices than one launch takes, of many sizes and alignments, each with its decay and rate.
TEST(OptimizerOnGpu, ManySegmentsInOneCallEqualTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  constexpr std::size_t kSegments = 1100;
  for (const bool adam : {true, false}) {
    std::vector<UpdateSegment> on_host, on_gpu;
    for (std::size_t i = 0; i < kSegments; ++i) {
      const auto count = static_cast<std::int64_t>(i % 10 == 9 ? 40000 + i : i * 7 % 301);
      const AdamState start{normal({count}, 1, DType::Float), normal({count}, 2, DType::Float, 0.1),
                            normal({count}, 3, DType::Float, 0.1).square()};
      const Tensor grad = normal({count}, static_cast<int>(i), DType::Float);
      for (const Device device : {kCpu, kGpu}) {
        const auto copy = [&](const Tensor& t) { return t.to(device).clone(); };
        (device == kCpu ? on_host : on_gpu)
            .push_back({.param = copy(start.p),
                        .grad = copy(grad),
                        .first = copy(start.m),
                        .second = adam ? copy(start.v) : Tensor(),
                        .decays = i % 2 == 0,
                        .rate = static_cast<RateClass>(i % kNumRateClasses),
                        .eps_factor = i % 5 == 0 ? 0.3 : 1.0});
      }
    }
    for (auto* segments : {&on_host, &on_gpu}) {
      const Device device = (*segments)[0].param.device();
      AdamScalars now = adam_scalars(device);
      now.decoupled_lr = tensor::scalar(0.02, DType::Double, device);
      now.width_lr = tensor::scalar(0.003, DType::Double, device);
      if (adam) {
        adamw_step(*segments, now, {.weight_decay = 0.5});
      } else {
        sgd_step(*segments, now, 0.9, 0.5);
      }
    }
    for (std::size_t i = 0; i < kSegments; ++i) {
      EXPECT_TRUE(bit_equal(on_host[i].param, on_gpu[i].param)) << i;
      EXPECT_TRUE(bit_equal(on_host[i].first, on_gpu[i].first)) << i;
    }
  }
}

TEST(OptimizerOnGpu, CutsDoNotChangeABitAndFp64Agrees) {
  PENTATRON_NEEDS_GPUS(1);
  constexpr std::int64_t kCount = 5001;
  for (const DType dtype : {DType::Float, DType::Double}) {
    const AdamState start{normal({kCount}, 1, dtype), normal({kCount}, 2, dtype, 0.1),
                          normal({kCount}, 3, dtype, 0.1).square()};
    const Tensor grad = normal({kCount}, 4, dtype).to(kGpu);
    const AdamState whole = start.to(kGpu), cut = start.to(kGpu);
    adamw_step(whole.p, grad, whole.m, whole.v, adam_scalars(kGpu), {});
    for (const auto& [begin, size] :
         {std::pair{0, 1}, {1, 63}, {64, 1000}, {1064, 1}, {1065, kCount - 1065}}) {
      const auto slice = [&, at = begin, n = size](const Tensor& t) { return t.narrow(0, at, n); };
      adamw_step(slice(cut.p), slice(grad), slice(cut.m), slice(cut.v), adam_scalars(kGpu), {});
    }
    EXPECT_TRUE(bit_equal(whole.p, cut.p));
    EXPECT_TRUE(bit_equal(whole.v, cut.v));
    const AdamState host{start.p.clone(), start.m.clone(), start.v.clone()};
    adamw_step(host.p, grad.cpu(), host.m, host.v, adam_scalars(kCpu), {});
    expect_close(whole.p, host.p, dtype == DType::Double ? 1e-15 : 0.0, "parameter");
  }
}

TEST(OptimizerOnGpu, SkipFlagLeavesEverythingUntouched) {
  PENTATRON_NEEDS_GPUS(1);
  const AdamState start{normal({77}, 1, DType::Float), normal({77}, 2, DType::Float),
                        normal({77}, 3, DType::Float).square()};
  const AdamState gpu = start.to(kGpu);
  const Tensor bad = tensor::full({77}, std::nan(""), DType::Float, kGpu);
  AdamScalars scalars = adam_scalars(kGpu);
  scalars.skip = tensor::scalar(1, DType::Double, kGpu);
  scalars.step = tensor::scalar(0, DType::Double, kGpu);
  adamw_step(gpu.p, bad, gpu.m, gpu.v, scalars, {});
  sgd_step(gpu.p, bad, gpu.m, scalars, 0.9, 0.1);
  EXPECT_TRUE(bit_equal(start.p, gpu.p));
  EXPECT_TRUE(bit_equal(start.m, gpu.m));
  EXPECT_TRUE(bit_equal(start.v, gpu.v));
}

TEST(SumsOnGpu, SumOfSquaresIsExactAndRepeats) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t count : {0, 1, 4095, 4097, 5000011}) {
    for (const DType dtype : {DType::Double, DType::Float, DType::BFloat16}) {
      const Tensor x = normal({count}, 1, DType::Float).to(dtype);
      const double expected = x.to(DType::Double).square().sum().item<double>();
      const Tensor gpu = x.to(kGpu);
      const Tensor sum = sum_of_squares(gpu);
      EXPECT_TRUE(sum.is_cuda() && sum.dim() == 0 && sum.scalar_type() == DType::Double);
      EXPECT_NEAR(sum.item<double>(), expected, 1e-12 * expected);
      EXPECT_EQ(sum_of_squares(gpu).item<double>(), sum.item<double>());
      if (count < 2) continue;
      // A slice that no wide load can read.
      EXPECT_NEAR(sum_of_squares(gpu.narrow(0, 1, count - 1)).item<double>(),
                  expected - std::pow(x[0].item<double>(), 2), 1e-12 * expected);
    }
  }
}

// Sums in the order of t from the slot's own value: the CPU's bits.
TEST(SumsOnGpu, EmbeddingGradientEqualsTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < 3000; ++t) tokens.push_back(t % 2 == 0 ? 11 : t * 7 % 97);
  for (const std::int64_t h : {64, 13}) {
    for (const DType slot : {DType::Float, DType::BFloat16}) {
      testing::TestWeight host(normal({90, h}, 1).to(DType::BFloat16), slot);
      testing::TestWeight gpu(host.value().to(kGpu), slot);
      for (int step = 0; step < 2; ++step) {
        const Tensor g = normal({3000, h}, 2 + step).to(DType::BFloat16);
        run_backward(embedding(ids(tokens), host, 5, 88), g);
        run_backward(embedding(ids(tokens).to(kGpu), gpu, 5, 88), g.to(kGpu));
        EXPECT_TRUE(bit_equal(host.grad(), gpu.grad())) << h << " channels, step " << step;
      }
    }
  }
}

// A recorded step reads positions that no host has checked.
TEST(RotaryOnGpu, PositionOutsideTheTableGivesNotANumber) {
  PENTATRON_NEEDS_GPUS(1);
  const Tensor x = normal({3, 2, 8}, 1, DType::Float).to(kGpu);
  const RotaryTable table = make_rotary_table(4, 8, 100.0, DType::Float, kGpu);
  const SequenceLayout layout = SequenceLayout({.boundaries = {0, 3}}).to(kGpu);
  layout.positions().copy_(ids({3, 4, -1}));
  const Tensor y = rotary(x, table, layout).cpu();
  EXPECT_TRUE(tensor::all_finite(y[0]));
  EXPECT_TRUE(y.narrow(0, 1, 2).isnan().all().item<bool>());
}

// Two slices of a vocabulary with padding that would win every maximum, as in loss_test.
TEST(LossOnGpu, SlicesEqualThePlainLoss) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t padding : {27, 28, 24}) {
    for (const auto& [dtype, tolerance, grad_tolerance] : {std::tuple{DType::Double, 1e-13, 1e-13},
                                                           {DType::Float, 1e-6, 1e-6},
                                                           {DType::BFloat16, 1e-6, 4e-3}}) {
      constexpr std::int64_t kRows = 7, kVocab = 2500, kLeft = 1600;
      const DType statistics = dtype == DType::Double ? DType::Double : DType::Float;
      const Tensor logits = normal({kRows, kVocab}, 1, DType::Double, 3.0).to(dtype);
      const Tensor labels = ids({0, 1599, 1600, 2499, 77, 1601, 5});
      const Tensor weight = normal({kRows}, 2).abs();
      weight[4] = 0.0;
      const Tensor x = testing::leaf(logits.to(DType::Double));
      const Tensor picked = x.log_softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1);
      picked.mul(weight).sum().neg().backward();

      const std::int64_t valid = kVocab - kLeft;
      const Tensor left = logits.narrow(1, 0, kLeft).contiguous().to(kGpu);
      const Tensor right =
          tensor::cat({logits.narrow(1, kLeft, valid), tensor::full({kRows, padding}, 1e4, dtype)},
                      1)
              .to(kGpu);
      const Tensor label = labels.to(kGpu), scale = weight.to(statistics).to(kGpu);
      const SoftmaxPieces a = softmax_pieces(left, label, 0, kLeft, statistics);
      const SoftmaxPieces b = softmax_pieces(right, label, kLeft, valid, statistics);
      const Tensor max = a.max_t.maximum(b.max_t);
      EXPECT_EQ(max.scalar_type(), statistics);
      const Tensor lse = sum_exp_below(a, max).add(sum_exp_below(b, max)).log().add(max);
      expect_close(lse.sub(a.target_logit_t.add(b.target_logit_t)), picked.detach().neg(),
                   tolerance, "loss");
      softmax_gradient_(left, label, lse, scale, 0, kLeft);
      softmax_gradient_(right, label, lse, scale, kLeft, valid);
      expect_close(tensor::cat({left, right.narrow(1, 0, valid)}, 1), x.grad(), grad_tolerance,
                   "gradient");
      EXPECT_TRUE(right.narrow(1, valid, padding).eq(0.0).all().item<bool>());
      EXPECT_TRUE(left[4].eq(0.0).all().item<bool>());
    }
  }
}

// Rows of one block, of clusters of two to eight, too long for any, and not of whole vectors; with
// labels elsewhere and padding.
TEST(LossOnGpu, PiecesWithGradientEqualThePlainLoss) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [dtype, columns, valid] : {std::tuple{DType::BFloat16, 64, 3},
                                              {DType::BFloat16, 50304, 50257},
                                              {DType::BFloat16, 128256, 128256},
                                              {DType::BFloat16, 262144, 262100},
                                              {DType::BFloat16, 50257, 50257},
                                              {DType::Half, 32000, 32000},
                                              {DType::Float, 32000, 31999},
                                              {DType::Float, 128256, 128000},
                                              {DType::Float, 262144, 262144},
                                              {DType::Double, 4096, 4000}}) {
    constexpr std::int64_t kRows = 5;
    const DType statistics = dtype == DType::Double ? DType::Double : DType::Float;
    const Tensor logits = normal({kRows, columns}, 1, DType::Double, 3.0).to(dtype);
    const Tensor labels = ids({0, valid - 1, valid / 2, -7, valid});
    const Tensor weight = normal({kRows}, 2).abs();
    weight[2] = 0.0;
    const Tensor x = testing::leaf(logits.narrow(1, 0, valid).to(DType::Double));
    const Tensor log_probabilities = x.log_softmax(-1);
    const Tensor picked = log_probabilities.gather(1, labels.clamp(0, valid - 1).unsqueeze(1));
    Tensor expected = log_probabilities.exp().detach();
    for (std::int64_t row = 0; row < 3; ++row) expected[row][labels[row].item<std::int64_t>()] -= 1;
    expected = expected.mul(weight.unsqueeze(1));

    const Tensor in_place = logits.to(kGpu), label = labels.to(kGpu);
    const SoftmaxPieces pieces = softmax_with_gradient_(
        in_place, label, weight.to(statistics).to(kGpu), 0, valid, statistics);
    const Tensor losses = pieces.max_t.add(pieces.sum_exp_t.log()).sub(pieces.target_logit_t);
    const std::string what = std::to_string(columns);
    expect_close(losses.narrow(0, 0, 3), picked.detach().neg().squeeze(1).narrow(0, 0, 3),
                 dtype == DType::Double ? 1e-13 : 2e-6, "loss " + what);
    EXPECT_TRUE(pieces.target_logit_t.narrow(0, 3, 2).eq(0.0).all().item<bool>()) << what;
    const double tolerance = dtype == DType::Double ? 1e-13 : dtype == DType::Float ? 2e-6 : 4e-3;
    expect_close(in_place.narrow(1, 0, valid), expected, tolerance, "gradient " + what);
    EXPECT_TRUE(in_place.narrow(1, valid, columns - valid).eq(0.0).all().item<bool>()) << what;
    // Determinism.
    const Tensor again = logits.to(kGpu);
    (void)softmax_with_gradient_(again, label, weight.to(statistics).to(kGpu), 0, valid,
                                 statistics);
    EXPECT_TRUE(again.equal(in_place)) << what;
  }
}

// A target that gives something to every id: the CPU's numbers, in both widths of reading.
TEST(LossOnGpu, SmoothedLabelsEqualTheCpus) {
  PENTATRON_NEEDS_GPUS(1);
  constexpr LossTarget kTarget{.label = 0.8, .every = 0.2 / 2498};
  for (const std::int64_t columns : {2501, 2504}) {
    for (const auto& [dtype, tolerance] :
         {std::pair{DType::Double, 1e-13}, {DType::Float, 1e-6}, {DType::BFloat16, 4e-3}}) {
      const DType statistics = dtype == DType::Double ? DType::Double : DType::Float;
      constexpr std::int64_t kRows = 5, kValid = 2498;
      const Tensor logits = normal({kRows, columns}, 1, DType::Double, 3.0).to(dtype);
      const Tensor labels = ids({0, 2497, 1600, 99, 77});
      const Tensor weight = normal({kRows}, 2).abs().to(statistics);
      const Tensor device_logits = logits.to(kGpu);
      const SoftmaxPieces cpu = softmax_pieces(logits, labels, 0, kValid, statistics, true);
      const SoftmaxPieces gpu =
          softmax_pieces(device_logits, labels.to(kGpu), 0, kValid, statistics, true);
      const SoftmaxPieces plain =
          softmax_pieces(device_logits, labels.to(kGpu), 0, kValid, statistics);
      expect_close(gpu.logit_sum_t.cpu(), cpu.logit_sum_t, dtype == DType::Double ? 1e-13 : 1e-5,
                   "sum of logits");
      EXPECT_TRUE(gpu.max_t.equal(plain.max_t) && gpu.sum_exp_t.equal(plain.sum_exp_t));
      EXPECT_FALSE(plain.logit_sum_t.defined());
      const Tensor lse_t = cpu.sum_exp_t.log().add(cpu.max_t);
      softmax_gradient_(logits, labels, lse_t, weight, 0, kValid, kTarget);
      softmax_gradient_(device_logits, labels.to(kGpu), lse_t.to(kGpu), weight.to(kGpu), 0, kValid,
                        kTarget);
      expect_close(device_logits.cpu(), logits, tolerance, "gradient");
    }
  }
}

TEST(LossOnGpu, RankWithoutColumnsAndNotANumber) {
  PENTATRON_NEEDS_GPUS(1);
  const Tensor logits = tensor::full({3, 40}, 9.0, DType::Float, kGpu);
  const Tensor labels = tensor::zeros({3}, DType::Long, kGpu);
  const SoftmaxPieces none = softmax_pieces(logits, labels, 100, 0, DType::Float);
  EXPECT_TRUE(tensor::all_finite(none.max_t.cpu()));
  EXPECT_LT(none.max_t.max().item<double>(), -1e38);
  EXPECT_EQ(none.sum_exp_t.abs().max().item<double>(), 0.0);
  EXPECT_EQ(none.target_logit_t.abs().max().item<double>(), 0.0);
  logits[1][17] = std::nan("");
  const SoftmaxPieces pieces = softmax_pieces(logits, labels, 0, 40, DType::Float);
  EXPECT_TRUE(std::isfinite(pieces.sum_exp_t[0].item<float>()));
  EXPECT_TRUE(std::isnan(pieces.sum_exp_t[1].item<float>()));
  EXPECT_THROW((void)softmax_pieces(logits, labels, 0, 40, DType::Double), Error);
}

// Low-precision operands into an fp32 slot: sums stay in fp32 (nothing is rounded to 8 bits on the
// way), and accumulation adds.
// Memory that the next tensors of at most so many bytes get back: full of NaN, so that what a
// kernel leaves out shows.
void poison(std::int64_t bytes) {
  for (const std::int64_t size : {bytes, bytes, bytes, bytes}) {
    (void)tensor::full({size / 4}, std::nan(""), DType::Float, kGpu);
  }
}

// The sum and its norm have the bits of two kernels, in fp32 every gradient too; odd and long rows.
TEST(NormOnGpu, WithAnAdditionHasTheBitsOfTwoOps) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto& [rows, h] : {std::pair<std::int64_t, std::int64_t>{37, 33},
                                {300, 768},
                                {65, 4096},
                                {3, 8192},
                                {2, 8200},
                                {5, 12289}}) {
    for (const DType dtype : {DType::Float, DType::BFloat16, DType::Half}) {
      for (const bool bias : {false, true}) {
        const auto run = [&, rows = rows, h = h](bool one_pass) {
          const auto made = [&](std::uint64_t seed) {
            return normal({rows, h}, seed).to(dtype).to(kGpu);
          };
          const Tensor x = testing::leaf(made(1)), delta = testing::leaf(made(2));
          const Tensor of_sum = made(5), of_norm = made(6);
          testing::TestWeight w(normal({h}, 3).to(dtype).to(kGpu), DType::Float),
              b(normal({h}, 4).to(dtype).to(kGpu), DType::Float);
          poison(rows * h * tensor::item_bytes(dtype));
          const AddedNorm out = testing::added_norm(one_pass, bias, x, delta, w, b);
          const Tensor both = out.sum_th.mul(of_sum).add(out.norm_th.mul(of_norm));
          poison(rows * h * tensor::item_bytes(dtype));
          run_backward(both, tensor::ones({rows, h}, dtype, kGpu));
          return std::vector<Tensor>{out.sum_th.detach(), out.norm_th.detach(), w.grad(), x.grad(),
                                     delta.grad()};
        };
        const std::vector<Tensor> one = run(true), two = run(false);
        for (std::size_t i = 0; i < one.size(); ++i) {
          if (dtype == DType::Float || i < 3) {
            EXPECT_TRUE(bit_equal(one[i], two[i])) << "result " << i << ", rows of " << h;
          } else {
            expect_close(one[i], two[i], 0.008, "result " + std::to_string(i));
          }
        }
      }
    }
  }
}

TEST(ProductsOnGpu, AccumulateInFp32) {
  PENTATRON_NEEDS_GPUS(1);
  for (const DType dtype : {DType::BFloat16, DType::Half, DType::Float, DType::Double}) {
    const DType slot = dtype == DType::Double ? DType::Double : DType::Float;
    const Tensor a = normal({100, 70}, 1).to(dtype), b = normal({100, 30}, 2).to(dtype);
    const Tensor expected = a.to(DType::Double).t().matmul(b.to(DType::Double));
    Tensor out = tensor::full({70, 30}, std::nan(""), slot, kGpu);
    tensor::matmul_into(out, a.to(kGpu).t(), b.to(kGpu), false);
    expect_close(out, expected, slot == DType::Double ? 1e-13 : 1e-6, "overwritten");
    tensor::matmul_into(out, a.to(kGpu).t(), b.to(kGpu), true);
    expect_close(out, expected.mul(2.0), slot == DType::Double ? 1e-13 : 1e-6, "added");
    tensor::matmul_into(out, a.to(kGpu).narrow(0, 0, 0).t(), b.to(kGpu).narrow(0, 0, 0), false);
    EXPECT_EQ(out.abs().max().item<double>(), 0.0);
  }
}

}  // namespace
}  // namespace pentatron::ops
