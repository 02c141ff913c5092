// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/attention_window.h"

#include <gtest/gtest.h>

#include <string>

#include "pentatron/base/test_support.h"
#include "pentatron/config/validate.h"

namespace pentatron::config {
namespace {

using Windows = std::vector<std::int64_t>;

Windows windows_of(const std::string& size, const std::string& skip = {},
                   std::int64_t num_layers = 5) {
  ModelConfig model;
  model.num_layers = num_layers;
  model.window_size = size;
  model.window_attn_skip_freq = skip;
  return window_of_layers(model);
}

// Megatron-LM counts layers from one: with a number the N-th, 2 N-th, ... see all keys, in a list 1
// stands for a window.
TEST(AttentionWindow, OfEachLayer) {
  EXPECT_EQ(windows_of(""), (Windows{-1, -1, -1, -1, -1}));
  EXPECT_EQ(windows_of("", "2"), (Windows{-1, -1, -1, -1, -1}));
  EXPECT_EQ(windows_of("128,0"), (Windows{128, 128, 128, 128, 128}));
  EXPECT_EQ(windows_of("128,0", "2"), (Windows{128, -1, 128, -1, 128}));
  EXPECT_EQ(windows_of("128,0", "9"), (Windows{128, 128, 128, 128, 128}));
  EXPECT_EQ(windows_of("7,0", "1"), (Windows{-1, -1, -1, -1, -1}));
  EXPECT_EQ(windows_of("7,0", "[1,0,0,1,1]"), (Windows{7, -1, -1, 7, 7}));
  EXPECT_EQ(windows_of("7,0", "[0]+([1]*3+[0])*1"), (Windows{-1, 7, 7, 7, -1}));
}

TEST(AttentionWindow, ReadsPairs) {
  for (const char* text : {"(4,0)", "4,-1", "(4, 0)", " 4 , 0 ", "4, -1"}) {
    EXPECT_EQ(windows_of(text).front(), 4) << text;
  }
  EXPECT_EQ(windows_of("0,0").front(), 0);
  EXPECT_EQ(windows_of("-1,0").front(), -1);
  EXPECT_EQ(windows_of("(-1,-1)").front(), -1);
}

TEST(AttentionWindow, RefusesWhatIsNone) {
  for (const char* text : {"4", "4,", ",0", "a,0", "4,0,0", "-2,0", "4;0", "(4,0", "4,0)", "1e3,0",
                           "99999999999999999999,0", "1000000001,0", "()", "(,)", ","}) {
    expect_error(ErrorKind::kConfig, "--window-size", [&] { (void)windows_of(text); });
  }
  expect_error(ErrorKind::kConfig, "sees no later key", [] { (void)windows_of("4,1"); });
  expect_error(ErrorKind::kConfig, "--window-attn-skip-freq",
               [] { (void)windows_of("4,0", "[1,0]"); });
  expect_error(ErrorKind::kConfig, "--window-attn-skip-freq", [] { (void)windows_of("4,0", "0"); });
}

// Before a run starts, with everything else that is wrong.
TEST(AttentionWindow, IsCheckedAtTheStart) {
  RunConfig config;
  ModelConfig& m = config.model;
  m.num_layers = 2;
  m.hidden_size = 8;
  m.num_attention_heads = 2;
  m.max_position_embeddings = m.seq_length = 8;
  m.vocab_size = 16;
  config.data.tokenizer_type = "NullTokenizer";
  // Spellings of one window are one model.
  for (const char* text : {"3,0", "(3, -1)"}) {
    m.window_size = text;
    resolve(config, Purpose::kModel);
    EXPECT_EQ(m.window_size, "3,0");
  }
  m.window_size = "-1,0";
  resolve(config, Purpose::kModel);
  EXPECT_EQ(m.window_size, "");
  m.window_size = "3,2";
  expect_error(ErrorKind::kConfig, "--window-size", [&] { resolve(config, Purpose::kModel); });
}

}  // namespace
}  // namespace pentatron::config
