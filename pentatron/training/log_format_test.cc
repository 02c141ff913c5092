// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/log_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace pentatron::training {
namespace {

IterationLine example_line() {
  return {.timestamp = "2026-01-02 03:04:05.000678",
          .iteration = 100,
          .train_iters = 5000,
          .consumed_samples = 3200,
          .milliseconds_per_iteration = 123.45,
          .learning_rate = 1.5e-4,
          .global_batch_size = 32};
}

TEST(LogFormat, IterationLineAsMegatronPrintsIt) {
  IterationLine line = example_line();
  line.milliseconds_per_iteration = 123.46;
  line.lm_loss = 6.5432109;
  line.grad_norm = 1.23449;
  line.skipped_iterations = 2;
  line.nan_iterations = 1;
  EXPECT_EQ(format_iteration_line(line),
            " [2026-01-02 03:04:05.000678] iteration      100/    5000 | consumed samples:         "
            "3200 | elapsed time per iteration (ms): 123.5 | learning rate: 1.500000E-04 | global "
            "batch size:    32 | lm loss: 6.543211E+00 | loss scale: 1.0 | grad norm: 1.234 | "
            "number of skipped iterations:   2 | number of nan iterations:   1 |");
}

TEST(LogFormat, IterationLineWithEverything) {
  IterationLine line = example_line();
  line.milliseconds_per_iteration = 2000;
  line.tflops_per_gpu = 0.04;
  line.joules_per_gpu = 1234.56;
  line.watts_per_gpu = 617.28;
  line.lm_loss = 0.0;
  line.loss_scale = 65536;
  line.grad_norm = 12345.6789;
  line.num_zeros = 1234567;
  line.params_norm = 100.0006;
  line.max_attention_logit = 12.34567;
  line.iteration = 123456789;  // wider than its column: printed whole
  EXPECT_EQ(format_iteration_line(line),
            " [2026-01-02 03:04:05.000678] iteration 123456789/    5000 | consumed samples:        "
            " 3200 | elapsed time per iteration (ms): 2000.0 | throughput per GPU (TFLOP/s/GPU): "
            "0.0 | energy per GPU (J/iter/GPU): 1234.6 | power per GPU (W/GPU): 617.3 | learning "
            "rate: 1.500000E-04 | global batch size:    32 | lm loss: 0.000000E+00 | loss scale: "
            "65536.0 | grad norm: 12345.679 | num zeros: 1234567 | params norm: 100.001 | max "
            "attention logit: 12.346 | number of "
            "skipped iterations:   0 | number of nan iterations:   0 |");
}

TEST(LogFormat, LossIsLeftOutWhenNoIterationWasGood) {
  const std::string text = format_iteration_line(example_line());
  EXPECT_EQ(text.find("lm loss"), std::string::npos);
  EXPECT_EQ(text.find("grad norm"), std::string::npos);
  EXPECT_NE(text.find("batch size:    32 | loss scale: 1.0 | number"), std::string::npos) << text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

TEST(LogFormat, EvaluationBlockBetweenDashes) {
  const std::vector<std::string> lines = lines_of(format_evaluation_block("iteration 100", 2.5));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1],
            " validation loss at iteration 100 | lm loss value: 2.500000E+00 | lm loss PPL: "
            "1.218249E+01 | ");
  // The line's length, its trailing space counted, and one more.
  EXPECT_EQ(lines[0], std::string(lines[1].size() + 1, '-'));
  EXPECT_EQ(lines[2], lines[0]);
}

TEST(LogFormat, PerplexityStopsAtTwenty) {
  // exp(20) = 4.851652E+08; a loss just below is not cut.
  EXPECT_NE(format_evaluation_block("x", 20.0).find("PPL: 4.851652E+08 |"), std::string::npos);
  EXPECT_NE(format_evaluation_block("x", 1000.0).find("PPL: 4.851652E+08 |"), std::string::npos);
  EXPECT_NE(format_evaluation_block("x", 19.0).find("PPL: 1.784823E+08 |"), std::string::npos);
}

TEST(LogFormat, TimestampHasMicroseconds) {
  const std::regex with_micros(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6})");
  const std::regex without(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)");
  EXPECT_TRUE(std::regex_match(current_timestamp(), with_micros)) << current_timestamp();
  EXPECT_TRUE(std::regex_match(current_datetime(), without)) << current_datetime();
}

TEST(LogFormat, Durations) {
  EXPECT_EQ(format_duration(-3), "0s");
  EXPECT_EQ(format_duration(0.4), "0s");
  EXPECT_EQ(format_duration(12.4), "12s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m 00s");
  EXPECT_EQ(format_duration(200), "3m 20s");
  EXPECT_EQ(format_duration(3600), "1h 00m");
  EXPECT_EQ(format_duration(3725), "1h 02m");
  EXPECT_EQ(format_duration(100 * 3600.0 + 59 * 60), "100h 59m");
}

// Every matrix product of one forward counted by itself (2 per multiply-add), then times three.
double counted_flops(const FlopsInput& in, const std::vector<double>& lengths) {
  double forward = 0;
  const auto product = [&forward](double rows, auto inner, auto columns) {
    forward += 2.0 * rows * static_cast<double>(inner) * static_cast<double>(columns);
  };
  for (const double length : lengths) {
    for (std::int64_t layer = 0; layer < in.num_layers; ++layer) {
      product(length, in.hidden, in.query_projection);
      product(length, in.hidden, in.kv_projection);
      product(length, in.hidden, in.kv_projection);
      product(length / 2, length, in.query_projection);  // scores, the causal half
      product(length / 2, length, in.query_projection);  // their product with the values
      product(length, in.query_projection, in.hidden);
      product(length, in.hidden, in.ffn_hidden);
      if (in.swiglu) product(length, in.hidden, in.ffn_hidden);
      product(length, in.ffn_hidden, in.hidden);
    }
    product(length, in.hidden, in.padded_vocab);
  }
  return 3.0 * forward;
}

TEST(LogFormat, ModelFlopsCountEveryProduct) {
  for (const bool swiglu : {false, true}) {
    const std::vector<double> lengths{100, 7, 1024};
    FlopsInput in{.num_layers = 5,
                  .hidden = 96,
                  .ffn_hidden = 200,
                  .query_projection = 128,
                  .kv_projection = 32,
                  .padded_vocab = 1024,
                  .swiglu = swiglu};
    for (const double length : lengths) {
      in.tokens += length;
      in.sum_squared_lengths += length * length;
    }
    EXPECT_DOUBLE_EQ(model_flops(in), counted_flops(in, lengths));
  }
}

TEST(LogFormat, ModelFlopsOfGpt3Kind) {
  // GPT-3 175B, batch 1536: the published estimate without recompute is
  // 72 B s l h^2 (1 + s/6h + V/12lh); it counts the whole square of attention.
  const double b = 1536;
  const double s = 2048;
  const double l = 96;
  const double h = 12288;
  const double v = 51200;
  const FlopsInput in{.tokens = b * s,
                      .sum_squared_lengths = b * s * s,
                      .num_layers = 96,
                      .hidden = 12288,
                      .ffn_hidden = 4 * 12288,
                      .query_projection = 12288,
                      .kv_projection = 12288,
                      .padded_vocab = 51200};
  const double published = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  const double half_of_attention = 72 * b * s * l * h * h * s / (12 * h);
  EXPECT_NEAR(model_flops(in) / (published - half_of_attention), 1.0, 1e-12);
}

}  // namespace
}  // namespace pentatron::training
