// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/log_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace pentatron::training {
namespace {

using nn::ScalarKind;

const IterationTitle kTitle{
    .timestamp = "2026-01-02 03:04:05.000678", .iteration = 100, .train_iters = 5000};

nn::StepScalars example_scalars() {
  nn::StepScalars scalars;
  scalars.set("number of skipped iterations", 0);
  scalars.set("number of nan iterations", 0);
  scalars.set("consumed samples", 3200);
  scalars.set("elapsed time per iteration (ms)", 123.46);
  scalars.set("loss scale", 1);
  scalars.set("learning rate", 1.5e-4);
  scalars.set("global batch size", 32);
  return scalars;
}

TEST(LogFormat, IterationLineAsMegatronPrintsIt) {
  nn::StepScalars scalars = example_scalars();
  scalars.set("grad norm", 1.23449);
  scalars.set("lm loss", 6.5432109, ScalarKind::kLoss);
  scalars.set("number of skipped iterations", 2);
  scalars.set("number of nan iterations", 1);
  scalars.set("seconds", 0.5);  // not for the line
  scalars.set("lm loss count", 1000, ScalarKind::kCount);
  EXPECT_EQ(format_iteration_line(kTitle, scalars),
            " [2026-01-02 03:04:05.000678] iteration      100/    5000 | consumed samples:         "
            "3200 | elapsed time per iteration (ms): 123.5 | learning rate: 1.500000E-04 | global "
            "batch size:    32 | lm loss: 6.543211E+00 | loss scale: 1.0 | grad norm: 1.234 | "
            "number of skipped iterations:   2 | number of nan iterations:   1 |");
}

TEST(LogFormat, IterationLineWithEverything) {
  nn::StepScalars scalars = example_scalars();
  // In any order.
  scalars.set("router entropy", 0.75, ScalarKind::kMean);
  scalars.set("max attention logit", 12.34567, ScalarKind::kMax);
  scalars.set("params norm", 100.0006);
  scalars.set("num zeros", 1234567);
  scalars.set("grad norm", 12345.6789);
  scalars.set("loss scale", 65536);
  scalars.set("load balancing loss", 1.0625, ScalarKind::kLoss);
  scalars.set("load balancing loss count", 16, ScalarKind::kCount);
  scalars.set("lm loss", 0.0, ScalarKind::kLoss);
  scalars.set("power per GPU (W/GPU)", 617.28);
  scalars.set("energy per GPU (J/iter/GPU)", 1234.56);
  scalars.set("throughput per GPU (TFLOP/s/GPU)", 0.04);
  scalars.set("elapsed time per iteration (ms)", 2000);
  scalars.set("skipped samples", 64);
  IterationTitle title = kTitle;
  title.iteration = 123456789;  // wider than its column: printed whole
  EXPECT_EQ(
      format_iteration_line(title, scalars),
      " [2026-01-02 03:04:05.000678] iteration 123456789/    5000 | consumed samples:        "
      " 3200 | skipped samples:           64 | elapsed time per iteration (ms): 2000.0 | "
      "throughput per GPU (TFLOP/s/GPU): "
      "0.0 | energy per GPU (J/iter/GPU): 1234.6 | power per GPU (W/GPU): 617.3 | learning "
      "rate: 1.500000E-04 | global batch size:    32 | lm loss: 0.000000E+00 | load balancing "
      "loss: 1.062500E+00 | loss scale: "
      "65536.0 | grad norm: 12345.679 | num zeros: 1234567 | params norm: 100.001 | max "
      "attention logit: 12.346 | router entropy: 0.750 | number of "
      "skipped iterations:   0 | number of nan iterations:   0 |");
}

TEST(LogFormat, WhatIsMissingOrNotFiniteIsLeftOut) {
  const std::string without = format_iteration_line(kTitle, example_scalars());
  EXPECT_EQ(without.find("lm loss"), std::string::npos);
  EXPECT_EQ(without.find("grad norm"), std::string::npos);
  EXPECT_NE(without.find("batch size:    32 | loss scale: 1.0 | number"), std::string::npos)
      << without;
  for (const double value : {std::nan(""), -std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    nn::StepScalars scalars = example_scalars();
    scalars.set("grad norm", value);
    scalars.set("lm loss", value, ScalarKind::kLoss);
    EXPECT_EQ(format_iteration_line(kTitle, scalars), without);
  }
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
  for (const double value : {std::nan(""), -std::nan("")}) {
    EXPECT_EQ(lines_of(format_evaluation_block("x", value)).at(1),
              " validation loss at x | lm loss value: NAN | lm loss PPL: NAN | ");
  }
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
      if (in.attention_output_gate) product(length, in.hidden, in.query_projection);
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
                  .swiglu = swiglu,
                  .attention_output_gate = swiglu};
    for (const double length : lengths) {
      in.tokens += length;
      in.sum_squared_lengths += length * length;
    }
    EXPECT_DOUBLE_EQ(model_flops(in), counted_flops(in, lengths));
  }
}

// A layer of each form, against those of models whose layers are all the same.
TEST(LogFormat, ModelFlopsOfHeterogeneousLayers) {
  config::ModelConfig m;
  m.num_layers = 1;
  m.hidden_size = 64;
  m.num_attention_heads = 8;
  m.kv_channels = 8;
  m.num_query_groups = 4;
  m.ffn_hidden_size = 96;
  m.padded_vocab_size = 128;
  m.seq_length = 32;
  constexpr double kSamples = 3;
  const double usual = model_flops(m, kSamples);
  m.num_query_groups = 2;
  m.ffn_hidden_size = 40;
  const double other = model_flops(m, kSamples);
  m.num_layers = 2;
  const double other_layer = model_flops(m, kSamples) - other;
  m = config::ModelConfig(m);
  m.num_layers = 3;
  m.num_query_groups = 4;
  m.ffn_hidden_size = 96;
  m.heterogeneous_layers_config_encoded_json = R"({"block_configs": [
    {"attention": {}, "ffn": {"no_op": false}},
    {"attention": {"num_query_groups": 2}, "ffn": {"ffn_hidden_size": 40}},
    {"attention": {"replace_with_linear": true}, "ffn": {"no_op": true}}]})";
  const double linear = 6 * kSamples * 32 * 64 * 64;
  EXPECT_DOUBLE_EQ(model_flops(m, kSamples), usual + other_layer + linear);
}

TEST(LogFormat, QuickGegluIsGatedToo) {
  config::ModelConfig m;
  m.num_layers = 2;
  m.hidden_size = 64;
  m.num_attention_heads = m.num_query_groups = 8;
  m.kv_channels = 8;
  m.ffn_hidden_size = 96;
  m.padded_vocab_size = 128;
  m.seq_length = 32;
  const double plain = model_flops(m, 1);
  m.quick_geglu = true;
  EXPECT_DOUBLE_EQ(model_flops(m, 1), plain + 6.0 * 32 * 2 * 64 * 96);
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

// Multi-latent attention's products, written out: the down and up projections of queries and of
// keys and values, the rotated channels of keys and the projection behind; half of those of queries
// with keys and of probabilities with values.
TEST(LogFormat, ModelFlopsOfLatents) {
  config::ModelConfig m;
  m.num_layers = 4;
  m.hidden_size = 512;
  m.ffn_hidden_size = 2048;
  m.num_attention_heads = 8;
  m.num_query_groups = 8;
  m.kv_channels = 24;
  m.seq_length = 1024;
  m.padded_vocab_size = 50304;
  m.multi_latent_attention = true;
  m.q_lora_rank = 192;
  m.kv_lora_rank = 64;
  m.qk_head_dim = 16;
  m.qk_pos_emb_head_dim = 8;
  m.v_head_dim = 16;
  const double tokens = 3.0 * 1024;
  const double products =
      192.0 * (512 + 8 * 24 + 1) + 64.0 * (512 + 8 * 32 + 1) + 512.0 * 8 + 8.0 * 16 * 512;
  const double others = 4.0 * 2 * 512 * 2048 + 512.0 * 50304;
  const double core = 1024.0 * 4 * 8 * (24 + 16) / 2;
  EXPECT_DOUBLE_EQ(model_flops(m, 3), 6 * tokens * (4 * products + others + core));
  m.q_lora_rank = 0;
  const double whole = products - 192.0 * (512 + 8 * 24 + 1) + 512.0 * 8 * 24;
  EXPECT_DOUBLE_EQ(model_flops(m, 3), 6 * tokens * (4 * whole + others + core));
}

}  // namespace
}  // namespace pentatron::training
