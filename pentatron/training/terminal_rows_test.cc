// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/terminal_rows.h"

#include <gtest/gtest.h>

#include <string>

namespace pentatron::training {
namespace {

nn::StepScalars scalars() {
  nn::StepScalars numbers;
  numbers.set("elapsed time per iteration (ms)", 81.4);
  numbers.set("learning rate", 3e-4);
  numbers.set("global batch size", 64);
  numbers.set("lm loss", 4.07123, nn::ScalarKind::kLoss);
  numbers.set("loss scale", 1);
  numbers.set("grad norm", 1.23456);
  numbers.set("number of skipped iterations", 0);
  numbers.set("number of nan iterations", 0);
  return numbers;
}

TEST(TerminalRows, IterationsFitTheirTerminal) {
  const RowTitle title{.iteration = 7, .train_iters = 1000};
  EXPECT_EQ(iteration_row(title, scalars(), 12345, {.columns = 80}),
            "   7/1000  loss 4.0712  lr 3.00e-04  norm 1.235  12.3k tok/s   81 ms  batch 64");
  EXPECT_EQ(iteration_row(title, scalars(), 12345, {.columns = 60}),
            "   7/1000  loss 4.0712  norm 1.235  12.3k tok/s   81 ms");
  EXPECT_EQ(iteration_row(title, scalars(), 12345, {.columns = 24}), "   7/1000  loss 4.0712");
  nn::StepScalars more = scalars();
  more.set("number of skipped iterations", 2);
  more.set("loss scale", 65536);
  more.set("mtp_1 loss", 5.5, nn::ScalarKind::kLoss);
  const std::string wide = iteration_row(title, more, 12345, {.columns = 200});
  for (const char* part : {"skipped 2", "scale 65.5k", "mtp_1 loss 5.5000", "batch 64"}) {
    EXPECT_NE(wide.find(part), std::string::npos) << wide;
  }
  for (int columns = 1; columns <= 200; ++columns) {
    EXPECT_LE(display_width(iteration_row(title, more, 1e9, {.columns = columns})), columns);
  }
}

TEST(TerminalRows, TheLineBelow) {
  const LiveState phase{.phase = "saving", .phase_seconds = 2.04};
  EXPECT_EQ(live_line(phase, {}, 0), "| saving  2.0 s");
  LiveState state{.at = {.iteration = 420, .train_iters = 1000},
                  .loss = 4.0712,
                  .tokens_per_second = 12345,
                  .seconds_left = 80};
  EXPECT_EQ(live_line(state, {}, 1),
            "/   42 %  ########............  420/1000  loss 4.0712  12.3k tok/s  1m 20s left");
  EXPECT_EQ(live_line(state, {.columns = 60}, 1),
            "/  ##.....  420/1000  loss 4.0712  12.3k tok/s  1m 20s left");
  state.seconds_since_step = 45;  // a sign of life
  EXPECT_NE(live_line(state, {.columns = 120}, 1).find("step 45.0 s"), std::string::npos);
  for (int columns = 1; columns <= 200; ++columns) {
    EXPECT_LT(display_width(live_line(state, {.columns = columns}, 3)), columns);
    EXPECT_LT(display_width(live_line(phase, {.columns = columns}, 3)), columns);
  }
}

TEST(TerminalRows, EvaluationsAndTheEnd) {
  const RowTitle title{.iteration = 1000, .train_iters = 1000};
  EXPECT_EQ(evaluation_row(title, "validation", 4.0712, "on next samples", {.columns = 70}),
            "1000/1000  validation  loss 4.0712  ppl 58.6  on next samples");
  EXPECT_EQ(evaluation_row(title, "validation", 4.0712, "on next samples", {.columns = 60}),
            "1000/1000  validation  loss 4.0712  on next samples")
      << "why there are two losses at one iteration stays longest";
  EXPECT_EQ(event_row(title, "saved in run", Tone::kPlain, {}), "1000/1000  saved in run");
  EXPECT_EQ(
      summary_line({.iterations = 1000, .seconds = 100, .tokens = 5e6, .checkpoint = "run"}, {}),
      "done: 1000 iterations in 1m 40s  5.00M tokens  50.0k tok/s  saved in run");
}

TEST(TerminalRows, TheStart) {
  config::RunConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 64;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 128;
  config.parallel.world_size = 2;
  config.parallel.data_parallel_size = 2;
  config.training.train_iters = 10;
  config.training.global_batch_size = 8;
  EXPECT_EQ(start_lines(config, "cpu", {}),
            "pentatron\nmodel  2 layers, hidden 64, 4 heads, sequences of 128\n"
            "run    10 iterations of 8 samples, 1.02k tokens each\n"
            "on     2 ranks, data 2, fp32 on cpu");
}

}  // namespace
}  // namespace pentatron::training
