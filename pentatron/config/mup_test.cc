// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/mup.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/base/test_support.h"

namespace pentatron::config {
namespace {

ModelConfig asked() {
  ModelConfig model;
  model.use_mup = true;
  model.hidden_size = 1024;
  model.kv_channels = 64;
  model.mup_base_hidden_size = 256;
  return model;
}

ModelConfig resolved(ModelConfig model) {
  Problems problems;
  resolve_mup(model, problems);
  problems.throw_if_any();
  return model;
}

TEST(Mup, IsDerived) {
  ModelConfig model = resolved(asked());
  EXPECT_EQ(model.mup_width_mult, 4.0);
  EXPECT_EQ(model.mup_output_mult, 0.25);
  EXPECT_EQ(model.softmax_scale, 1.0 / 64);
  EXPECT_EQ(model.mup_embedding_mult, 1.0);

  ModelConfig other = asked();
  other.mup_base_head_dim = 64.0;  // the usual scale at the base
  EXPECT_EQ(resolved(other).softmax_scale, 0.125);
  other.mup_attn_scale_power = 0.5;
  EXPECT_EQ(resolved(other).softmax_scale, 1.0);
  other.softmax_scale = 0.3;
  EXPECT_EQ(resolved(other).softmax_scale, 0.3);
  other.mup_output_mult = 2.0;
  EXPECT_EQ(resolved(other).mup_output_mult, 2.0);
  other.mup_base_hidden_size = 0;
  EXPECT_EQ(resolved(other).mup_width_mult, 1.0);
  EXPECT_EQ(resolved(other).mup_base_hidden_size, 1024);

  // Again: the same.
  const ModelConfig again = resolved(model);
  EXPECT_EQ(again.mup_width_mult, 4.0);
  EXPECT_EQ(again.mup_output_mult, 0.25);
  EXPECT_EQ(again.softmax_scale, 1.0 / 64);
}

TEST(Mup, IsNothingUnasked) {
  ModelConfig model = asked();
  model.use_mup = false;
  model = resolved(model);
  EXPECT_EQ(model.mup_width_mult, 1.0);
  EXPECT_EQ(model.mup_output_mult, 1.0);
  EXPECT_FALSE(model.softmax_scale);
}

TEST(Mup, RefusesWhatContradicts) {
  ModelConfig model = asked();
  model.mup_width_mult = 4.0;
  EXPECT_EQ(resolved(model).mup_width_mult, 4.0);
  model.mup_width_mult = 2.0;
  expect_error(ErrorKind::kConfig,
               "--mup-width-mult 2 is not --hidden-size 1024 / "
               "--mup-base-hidden-size 256",
               [&] { (void)resolved(model); });
  model = asked();
  model.mup_attn_scale_power = 1e6;
  expect_error(ErrorKind::kConfig, "--mup-attn-scale-power", [&] { (void)resolved(model); });
}

}  // namespace
}  // namespace pentatron::config
