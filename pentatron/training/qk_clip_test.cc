// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/qk_clip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr double kLr = 0.01;
constexpr const char* kAttention = "decoder.layers.0.self_attention.linear_qkv.";

// Four heads in `groups` groups, whose logits are well above one.
config::RunConfig clipping(double threshold, const Layout& layout = {},
                           const ChangeConfig& change = {}) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.model.group_query_attention = true;
    c.model.num_query_groups = 2;
    c.model.init_method_std = 0.3;
    c.model.qk_clip = threshold > 0;
    c.model.qk_clip_threshold = threshold > 0 ? threshold : 100;
    c.training.precision = "fp64";
    c.optimizer.adam_eps = 1e-3;
    if (change) change(c);
  });
}

// One layer without dropout, trained by plain gradients.
config::RunConfig plain(double threshold, double alpha = 0.5) {
  return clipping(threshold, {}, [alpha](config::RunConfig& c) {
    c.model.num_layers = 1;
    c.model.hidden_dropout = c.model.attention_dropout = 0;
    c.model.qk_clip_alpha = alpha;
    c.optimizer.optimizer = "sgd";
    c.optimizer.sgd_momentum = 0;
    c.optimizer.clip_grad = 0;
  });
}

// Biases start at zero, where they would not show.
void set_biases(Engine& engine) {
  for (nn::Parameter* parameter : engine.stages().parameters()) {
    if (!parameter->local_name().ends_with("linear_qkv.bias")) continue;
    const std::int64_t n = parameter->data().numel();
    parameter->data().copy_(tensor::arange(n, DType::Double).mul(0.7).sin());
  }
}

// The largest logit of each head of the first layer, from the weights, in plain steps.
Tensor largest_logits(const config::ModelConfig& model, const Tensors& weights,
                      const std::vector<Batch>& batches) {
  const std::int64_t heads = model.num_attention_heads, d = model.kv_channels;
  Tensor largest = tensor::full({heads}, -1e300, DType::Double);
  for (const Batch& batch : batches) {
    const Tensor words = weights.at("embedding.word_embeddings.weight");
    const Tensor places = weights.at("embedding.position_embeddings.weight");
    const Tensor x = words.index_select(0, batch.tokens().to(DType::Long))
                         .add(places.index_select(0, batch.text().positions()));
    const Tensor centred = x.sub(x.mean(IntList{1}, true));
    const Tensor deviation =
        centred.mul(centred).mean(IntList{1}, true).add(model.layernorm_epsilon).sqrt();
    const Tensor normed = centred.div(deviation)
                              .mul(weights.at("decoder.layers.0.input_layernorm.weight"))
                              .add(weights.at("decoder.layers.0.input_layernorm.bias"));
    const auto projected = [&](const std::string& part, std::int64_t n) {
      return normed.matmul(weights.at(kAttention + part + ".weight").t())
          .add(weights.at(kAttention + part + ".bias"))
          .view({-1, n, d});
    };
    const Tensor q = projected("q", heads);
    const Tensor k =
        projected("k", model.num_query_groups).repeat_interleave(heads / model.num_query_groups, 1);
    for (const AttentionSegment& s : batch.text().attention()->segments) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        const Tensor seen = k.narrow(0, s.k_begin, i + 1);  // [i + 1, heads, d]
        const Tensor logits =
            seen.mul(q.narrow(0, s.q_begin + i, 1)).sum(2).div(std::sqrt(static_cast<double>(d)));
        largest = largest.maximum(logits.amax(IntList{0}));
      }
    }
  }
  return largest;
}

// The larger one of each group's two heads.
std::vector<double> of_groups(const Tensor& largest_n) {
  const Tensor g = largest_n.view({2, 2}).amax(IntList{1});
  return {g[0].item<double>(), g[1].item<double>()};
}

TEST(QkClip, EqualsTheRuleInFp64) {
  std::vector<double> logits;
  with_engine(plain(0), [&](Engine& engine) {
    set_biases(engine);
    logits = of_groups(largest_logits(engine.config().model, engine.gather_parameters(),
                                      micro_batches(engine, 0)));
  });
  ASSERT_GT(std::abs(logits[0] - logits[1]), 0.1);
  const double between = (logits[0] + logits[1]) / 2, below = std::min(logits[0], logits[1]) / 2;
  for (const double threshold : {between, below}) {
    for (const double alpha : {0.5, 0.2}) {
      with_engine(plain(threshold, alpha), [&](Engine& engine) {
        set_biases(engine);
        const Tensors before = engine.gather_parameters();
        (void)engine.forward_backward(micro_batches(engine, 0));
        const Tensors gradients = engine.gather_gradients();
        (void)engine.train_step(micro_batches(engine, 0), kLr, 0);
        const std::int64_t d = engine.config().model.kv_channels;
        for (const auto& [name, after] : engine.gather_parameters()) {
          const Tensor expected = before.at(name).sub(gradients.at(name).mul(kLr));
          for (std::int64_t group = 0; group < 2; ++group) {
            const double eta = std::min(1.0, threshold / logits[group]);
            if (name == std::string(kAttention) + "q.weight") {
              expected.narrow(0, group * 2 * d, 2 * d).mul_(std::pow(eta, alpha));
            } else if (name == std::string(kAttention) + "k.weight") {
              expected.narrow(0, group * d, d).mul_(std::pow(eta, 1 - alpha));
            }
          }
          EXPECT_LE(after.sub(expected).abs().max().item<double>(), 1e-13) << name;
        }
      });
    }
  }
}

// With gradients of nothing the next logits are those of the rule: without biases the largest one
// of every group that was above the threshold is the threshold.
TEST(QkClip, BringsLogitsBackToTheThreshold) {
  constexpr double kThreshold = 0.5;
  with_engine(plain(kThreshold), [&](Engine& engine) {
    const auto largest = [&] {
      return of_groups(largest_logits(engine.config().model, engine.gather_parameters(),
                                      micro_batches(engine, 0)));
    };
    const std::vector<double> before = largest();
    (void)engine.train_step(micro_batches(engine, 0), 0.0, 0);
    const std::vector<double> after = largest();
    for (std::size_t group = 0; group < 2; ++group) {
      ASSERT_GT(before[group], kThreshold);
      EXPECT_NEAR(after[group], kThreshold, 1e-12);
    }
    // Nothing is above it any more.
    const Tensors settled = engine.gather_parameters();
    (void)engine.train_step(micro_batches(engine, 0), 0.0, 0);
    for (const auto& [name, values] : engine.gather_parameters()) {
      EXPECT_LE(values.sub(settled.at(name)).abs().max().item<double>(), 1e-13) << name;
    }
  });
}

struct ClipLayout {
  const char* name;
  Layout layout;
  ChangeConfig change = {};
};

struct ClipRun {
  std::vector<double> losses;
  Tensors weights;
};

ClipRun clip_run(double threshold, const ClipLayout& layout) {
  ClipRun run;
  std::mutex mutex;
  with_engine(clipping(threshold, layout.layout,
                       [&](config::RunConfig& c) {
                         c.model.num_layers = 4;
                         if (layout.change) layout.change(c);
                       }),
              [&](Engine& engine) {
                const std::vector<double> losses = train_steps(engine, 0, 3);
                Tensors weights = engine.gather_parameters();
                if (engine.context().rank() != 0) return;
                const std::lock_guard lock(mutex);
                run = {losses, std::move(weights)};
              });
  return run;
}

constexpr double kLow = 2.0;

void with_context(config::RunConfig& c, const char* type) {
  c.parallel.world_size *= 2;
  c.parallel.context_parallel_size = 2;
  c.model.cp_comm_type = {type};
}

void sharded_parameters(config::RunConfig& c) {
  c.parallel.use_megatron_fsdp = true;
  c.parallel.data_parallel_sharding_strategy = "optim_grads_params";
}

class QkClipLayouts : public testing::TestWithParam<ClipLayout> {};

TEST_P(QkClipLayouts, EqualOneProcess) {
  static const ClipRun kAlone = clip_run(kLow, {"alone", {}});
  static const ClipRun kFree = clip_run(0, {"free", {}});
  EXPECT_NE(kAlone.losses[1], kFree.losses[1]) << "something is clipped";
  const ClipRun run = clip_run(kLow, GetParam());
  ASSERT_EQ(run.losses.size(), 3U);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(run.losses[step], kAlone.losses[step], 1e-11 * kAlone.losses[step]) << step;
  }
  ASSERT_EQ(run.weights.size(), kAlone.weights.size());
  for (const auto& [name, values] : kAlone.weights) {
    const double scale = std::max(values.abs().max().item<double>(), 1e-3);
    EXPECT_LE(run.weights.at(name).sub(values).abs().max().item<double>(), 1e-9 * scale) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    QkClip, QkClipLayouts,
    testing::Values(
        ClipLayout{"tensor2", {.tp = 2}}, ClipLayout{"copies4", {.tp = 4}},
        ClipLayout{"sequence2", {.tp = 2}, [](auto& c) { c.parallel.sequence_parallel = true; }},
        ClipLayout{"pipeline2", {.pp = 2}},
        ClipLayout{"virtual2",
                   {.pp = 2},
                   [](auto& c) { c.parallel.num_virtual_stages_per_pipeline_rank = 2; }},
        ClipLayout{"data2", {.dp = 2}}, ClipLayout{"optimizer2", {.dp = 2, .sharded = true}},
        ClipLayout{"parameters2", {.dp = 2}, sharded_parameters},
        ClipLayout{"ring2", {}, [](auto& c) { with_context(c, "p2p"); }},
        ClipLayout{"gather2", {}, [](auto& c) { with_context(c, "all_gather"); }},
        ClipLayout{"exchange2", {}, [](auto& c) { with_context(c, "a2a"); }},
        ClipLayout{"recompute_full",
                   {},
                   [](auto& c) {
                     c.model.recompute_granularity = "full";
                     c.model.recompute_method = "uniform";
                     c.model.recompute_num_layers = 2;
                   }},
        ClipLayout{"recompute_core",
                   {},
                   [](auto& c) {
                     c.model.recompute_granularity = "selective";
                     c.model.recompute_modules = {"core_attn"};
                   }},
        ClipLayout{"micro_batch1", {}, [](auto& c) { c.training.micro_batch_size = 1; }},
        ClipLayout{"with_its_log", {}, [](auto& c) { c.logging.log_max_attention_logit = true; }},
        ClipLayout{"all8",
                   {.tp = 2, .pp = 2, .dp = 2, .sharded = true},
                   [](auto& c) { c.parallel.sequence_parallel = true; }}),
    [](const testing::TestParamInfo<ClipLayout>& param) { return param.param.name; });

// Muon's matrices, whole on a rank, as anyone's.
TEST(QkClip, WithMuon) {
  const auto muon = [](auto& c) { c.optimizer.optimizer = "muon"; };
  const ClipRun alone = clip_run(kLow, {"alone", {}, muon});
  EXPECT_NE(alone.losses, clip_run(0, {"free", {}, muon}).losses);
  const ClipRun shared = clip_run(kLow, {"shared", {.tp = 2, .dp = 2, .sharded = true}, muon});
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(shared.losses[step], alone.losses[step], 1e-6 * alone.losses[step]) << step;
  }
}

// The log tells the largest of all heads, which are what is clipped by.
TEST(QkClip, LeavesTheLogAsItIs) {
  std::vector<double> logits;
  for (const double threshold : {0.0, kLow}) {
    with_engine(clipping(threshold, {}, [](auto& c) { c.logging.log_max_attention_logit = true; }),
                [&](Engine& engine) {
                  const StepResult step = engine.train_step(micro_batches(engine, 0), kLr, 0);
                  logits.push_back(step.scalars.find("max attention logit").value());
                  for (const nn::StepScalar& scalar : step.scalars) {
                    EXPECT_FALSE(scalar.name.starts_with("decoder.")) << scalar.name;
                  }
                });
  }
  EXPECT_EQ(logits.at(0), logits.at(1));
}

TEST(QkClip, ASkippedStepChangesNothing) {
  with_engine(clipping(kLow, {.dp = 2, .sharded = true}), [](Engine& engine) {
    (void)train_steps(engine, 0, 1);
    const Tensors before = engine.gather_parameters();
    std::vector<Batch> bad = micro_batches(engine, 1);
    if (engine.context().rank() == 1) bad.back().loss_mask().select(0, 0).fill_(std::nan(""));
    EXPECT_TRUE(engine.train_step(bad, kLr, kWeightDecay).skipped);
    EXPECT_EQ(first_difference(engine.gather_parameters(), before), "");
  });
}

TEST(QkClip, LeavesFrozenWeights) {
  const auto frozen = [](auto& c) { c.optimizer.freeze_parameters = {"decoder.layers.1.*"}; };
  for (const Layout& layout : {Layout{}, Layout{.tp = 2}, Layout{.dp = 2, .sharded = true}}) {
    with_engine(clipping(kLow, layout, frozen), [](Engine& engine) {
      const Tensors before = engine.gather_parameters();
      (void)engine.train_step(micro_batches(engine, 0), 0.0, 0);
      for (const auto& [name, values] : engine.gather_parameters()) {
        const bool clipped = name == std::string(kAttention) + "q.weight" ||
                             name == std::string(kAttention) + "k.weight";
        EXPECT_EQ(values.equal(before.at(name)), !clipped) << name;
      }
    });
  }
}

// Main parameters in fp32 are scaled, the model has them rounded: no second rounding.
TEST(QkClip, ScalesMainParameters) {
  for (const bool sharded : {false, true}) {
    const Layout layout{.dp = sharded ? 2 : 1, .sharded = sharded};
    with_engine(clipping(kLow, layout, [](auto& c) { c.training.precision = "bf16"; }),
                [](Engine& engine) {
                  (void)train_steps(engine, 0, 2);
                  const Tensors weights = engine.gather_parameters();
                  int compared = 0;
                  for (const optimizer::StateSlice& slice : engine.state_slices(false)) {
                    if (slice.kind != "main_param") continue;
                    const Tensor seen = weights.at(slice.part->name)
                                            .view({-1})
                                            .narrow(0, slice.box_begin, slice.values.numel());
                    EXPECT_EQ(slice.values.scalar_type(), DType::Float);
                    EXPECT_TRUE(slice.values.to(DType::BFloat16).to(DType::Double).equal(seen))
                        << slice.part->name;
                    ++compared;
                  }
                  EXPECT_GT(compared, 10);
                });
  }
}

// Every range of elements of a matrix of 4 x 3.
TEST(QkClip, ScalesRangesOfElements) {
  const Tensor factor = tensor::from_vector(std::vector<double>{2, 3, 5, 7});
  for (std::int64_t begin = 0; begin <= 12; ++begin) {
    for (std::int64_t end = begin; end <= 12; ++end) {
      const Tensor values = tensor::arange(12, DType::Double).add(1).narrow(0, begin, end - begin);
      const Tensor expected = values.clone();
      for (std::int64_t i = begin; i < end; ++i) {
        expected[i - begin] = static_cast<double>(i + 1) * factor[i / 3].item<double>();
      }
      scale_rows(values, begin, 3, factor);
      EXPECT_TRUE(values.equal(expected)) << begin << " to " << end;
    }
  }
  EXPECT_THROW(scale_rows(tensor::arange(3, DType::Double), 10, 3, factor), Error);
}

}  // namespace
}  // namespace pentatron::training
