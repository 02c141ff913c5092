// SPDX-License-Identifier: Apache-2.0
// Maximal update parametrisation: steps against numbers worked out by hand, and what it is for.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "pentatron/config/adapter_names.h"
#include "pentatron/config/adapters.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr double kLr = 0.01;
constexpr double kEps = 0.125;

// Twice as wide as its base.
config::RunConfig wide(const char* optimizer, const Layout& layout = {},
                       std::optional<double> decoupled_lr = {}) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.model.use_mup = true;
    c.model.mup_base_hidden_size = 16;
    c.training.precision = "fp64";
    c.model.untie_embeddings_and_output_weights = true;
    c.optimizer.optimizer = optimizer;
    c.optimizer.decoupled_lr = decoupled_lr;
    c.optimizer.clip_grad = 0;
    c.optimizer.adam_eps = kEps;
  });
}

bool is_hidden(const std::string& name) {
  return name.starts_with("decoder.layers.") && name.ends_with(".weight") &&
         name.find("norm") == std::string::npos;
}
bool has_decoupled(const std::string& name) {
  return name.starts_with("embedding.word") || name.starts_with("output_layer");
}

// B of adapters is zero at first, which would hide what A does.
void wake_adapters(Engine& engine) {
  engine.optimizer().fill([](nn::Parameter& parameter) {
    for (const nn::ShardPart& part : parameter.spec().parts) {
      if (!part.name.ends_with(".lora_b") || part.box.empty()) continue;
      tensor::fill_normal_keyed(nn::part_view(parameter.data(), part), 5, part.name, 0.3,
                                part.logical_shape, part.box.offset);
    }
  });
}

// One step of Adam from nothing is lr g / (|g| + eps), one of SGD lr g, each with the rate and eps
// of the weight's class.
void expect_first_step(const config::RunConfig& config, bool adam) {
  with_engine(config, [&](Engine& engine) {
    const Tensors before = engine.gather_parameters();
    (void)engine.forward_backward(micro_batches(engine, 0));
    const Tensors gradients = engine.gather_gradients();
    const std::optional<double> decoupled = config.optimizer.decoupled_lr;
    (void)engine.train_step(micro_batches(engine, 0),
                            {.lr = kLr, .weight_decay = 0, .decoupled_lr = decoupled});
    for (const auto& [name, after] : engine.gather_parameters()) {
      const bool hidden = is_hidden(name);
      double lr = adam && hidden ? kLr / 2 : kLr;
      if (!adam && !hidden) lr = kLr * 2;
      if (decoupled && has_decoupled(name)) lr = *decoupled;
      const Tensor& g = gradients.at(name);
      const double eps = hidden ? kEps / 2 : kEps;
      const Tensor update = adam ? g.div(g.abs().add(eps)) : g;
      const Tensor expected = before.at(name).sub(update.mul(lr));
      EXPECT_LE(after.sub(expected).abs().max().item<double>(), 1e-15) << name;
      EXPECT_GT(update.abs().max().item<double>(), 0) << name;
    }
  });
}

TEST(Mup, RatesAndEpsFollowTheClassOfTheWeight) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
    expect_first_step(wide("adam", layout), /*adam=*/true);
    expect_first_step(wide("sgd", layout), /*adam=*/false);
  }
  expect_first_step(wide("adam", {}, 0.05), /*adam=*/true);
  expect_first_step(wide("sgd", {}, 0.05), /*adam=*/false);
}

// A of an adapter has the rate and eps of matrices inside layers, B and DoRA's lengths have the
// options' own; the weights beneath stand still.
TEST(Mup, AdaptersHaveTwoRates) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
    config::RunConfig config = wide("adam", layout);
    config.model.lora_rank = 2;
    config.model.lora_dora = true;
    config::Problems problems;
    config::resolve_adapters(config.model, problems);
    problems.throw_if_any();
    with_engine(config, [&](Engine& engine) {
      wake_adapters(engine);
      const Tensors before = engine.gather_parameters();
      (void)engine.forward_backward(micro_batches(engine, 0));
      const Tensors gradients = engine.gather_gradients();
      (void)engine.train_step(micro_batches(engine, 0), kLr, 0);
      for (const auto& [name, after] : engine.gather_parameters()) {
        if (!config::is_adapter_name(name)) {
          EXPECT_TRUE(after.equal(before.at(name))) << name;
          continue;
        }
        const double factor = name.ends_with(".lora_a") ? 0.5 : 1.0;
        const Tensor& g = gradients.at(name);
        const Tensor update = g.div(g.abs().add(kEps * factor)).mul(kLr * factor);
        EXPECT_LE(after.sub(before.at(name).sub(update)).abs().max().item<double>(), 1e-15) << name;
        EXPECT_GT(update.abs().max().item<double>(), 0) << name;
      }
    });
  }
}

// Muon's matrices and Adam's rest move as without.
TEST(Mup, LeavesMuonAlone) {
  Tensors moved[2];
  for (const bool mup : {false, true}) {
    const config::RunConfig config = tiny_config({}, [&](config::RunConfig& c) {
      c.optimizer.optimizer = "muon";
      c.optimizer.clip_grad = 0;
      c.model.use_mup = mup;
      c.model.mup_base_hidden_size = mup ? 16 : 0;
      // The same model otherwise.
      c.model.softmax_scale = 0.3;
      c.model.init_method_std = mup ? 0.1 * std::sqrt(2.0) : 0.1;
      c.model.embedding_init_method_std = 0.1;
      c.model.mup_output_mult = mup ? 0.999999999999 : 1.0;  // 1: 1 / the width's factor
      c.training.precision = "fp64";
    });
    with_engine(config, [&](Engine& engine) {
      (void)engine.train_step(micro_batches(engine, 0), kLr, 0);
      moved[mup ? 1 : 0] = engine.gather_parameters();
    });
  }
  for (const auto& [name, values] : moved[0]) {
    // Gradients that are zero in truth are noise, of which Adam's first step makes whole steps.
    if (name.find(".k.bias") != std::string::npos) continue;
    EXPECT_LE(values.sub(moved[1].at(name)).abs().max().item<double>(), 1e-6) << name;
  }
}

// How far `steps` of Adam move what a layer in the middle gives ("hidden", two stages), or the
// logits (one stage): the root mean square of the change. With a rank: of adapters alone, whose B
// is trained already.
double change_of(std::int64_t width, bool mup, bool hidden, int steps, std::int64_t rank = 0) {
  constexpr std::int64_t kBase = 32;
  constexpr std::int64_t kHeadDim = 8;
  constexpr double kSmallLr = 0.002;  // of the base, far from saturated
  const config::RunConfig config = tiny_config({.pp = hidden ? 2 : 1}, [&](config::RunConfig& c) {
    c.model.num_layers = 4;
    c.model.hidden_size = width;
    c.model.kv_channels = kHeadDim;
    c.model.num_attention_heads = width / kHeadDim;
    c.model.hidden_dropout = c.model.attention_dropout = 0;
    c.model.untie_embeddings_and_output_weights = true;
    c.model.use_mup = mup;
    c.model.mup_base_hidden_size = mup ? kBase : 0;
    if (mup) c.model.mup_base_head_dim = kHeadDim;
    // As usual without: in proportion to 1 / sqrt(width).
    if (!mup) c.model.init_method_std = 0.1 * std::sqrt(static_cast<double>(kBase) / width);
    c.model.embedding_init_method_std = 0.1;
    c.model.lora_rank = rank;
    c.optimizer.clip_grad = 0;
  });
  double change = 0;
  with_engine(config, [&](Engine& engine) {
    const Batch batch = micro_batches(engine, 0).at(0);
    const auto output = [&] {
      const tensor::NoGrad no_grad;
      nn::StepContext step{.batch = batch,
                           .policy = engine.policy(),
                           .phase = nn::Phase::kEvaluate,
                           .output = nn::StageOutput::kLogits};
      return engine.stages().at(0).forward({}, step).at(0).tensor.clone();
    };
    if (rank > 0) wake_adapters(engine);
    const bool measures = engine.context().rank() == 0;
    const Tensor before = measures ? output() : Tensor();
    for (int i = 0; i < steps; ++i) {
      (void)engine.train_step(micro_batches(engine, i), kSmallLr, 0);
    }
    if (measures) change = output().sub(before).square().mean().sqrt().item<double>();
  });
  return change;
}

// The check of coordinates, from the base to 8 times its width: changes of activations stay of one
// size, where they grow with the width without.
TEST(Mup, ActivationsKeepTheirSize) {
  constexpr int kSteps = 4;
  const double base = change_of(32, true, /*hidden=*/true, kSteps);
  for (const std::int64_t width : {64, 128, 256}) {
    EXPECT_NEAR(change_of(width, true, /*hidden=*/true, kSteps), base, 0.25 * base) << width;
  }
  EXPECT_GT(change_of(256, false, /*hidden=*/true, kSteps), 4 * base);
}

// So it is where adapters alone are trained, whose rank stays as it is.
TEST(Mup, AdaptersMoveActivationsByOneSize) {
  constexpr int kSteps = 2;
  constexpr std::int64_t kRank = 8;
  const double base = change_of(32, true, /*hidden=*/true, kSteps, kRank);
  for (const std::int64_t width : {64, 128, 256}) {
    EXPECT_NEAR(change_of(width, true, /*hidden=*/true, kSteps, kRank), base, 0.3 * base) << width;
  }
  EXPECT_GT(change_of(256, false, /*hidden=*/true, kSteps, kRank), 3 * base);
}

// Logits have the share of their random initial weights besides, which falls as 1 / sqrt(width).
TEST(Mup, LogitsDoNotGrow) {
  double last = change_of(32, true, /*hidden=*/false, 1);
  const double base = last;
  for (const std::int64_t width : {64, 128, 256}) {
    const double change = change_of(width, true, /*hidden=*/false, 1);
    EXPECT_LT(change, last) << width;
    EXPECT_GT(change, base * std::sqrt(32.0 / static_cast<double>(width))) << width;
    last = change;
  }
  EXPECT_GT(change_of(256, false, /*hidden=*/false, 1), 2 * base);
}

}  // namespace
}  // namespace pentatron::training
