// SPDX-License-Identifier: Apache-2.0
// A model whose layers have an auxiliary loss with a count of its own, a maximum, a mean and a bias
// that the optimizer step commits, as a router of experts does: all of it is equal in every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "pentatron/models/gpt/gpt_stage.h"
#include "pentatron/nn/recompute.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/step_records.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using parallel_layers::LeafContext;

constexpr std::int64_t kExperts = 6;
constexpr double kBiasRate = 0.05;
constexpr const char* kRouterLoss = "router loss";

// Every second token of a sample counts: another number than of valid tokens, and of all.
Tensor counted_rows(const Batch& batch) { return batch.text().token_index().remainder(2).eq(0); }

std::string router_name(int layer) { return "decoder.layers." + std::to_string(layer) + ".router"; }

// y = x * (1 + p of the expert chosen by p + bias). Loss: the squared log-sum-exp of the logits.
class Router final : public nn::Module {
 public:
  static void plan(nn::ParameterPlan& plan, const LeafContext& context, std::int64_t hidden,
                   int layer) {
    const std::string name = router_name(layer) + ".weight";
    const nn::InitSpec init{nn::InitKind::kNormal, 0.3};
    plan.add({name,
              lay_out({{.name = name, .rows = kExperts, .columns = hidden, .init = init}},
                      context.layout()),
              layer});
  }
  Router(const LeafContext& context, const nn::ParameterPlan& plan, int layer)
      : context_(context),
        routed_(router_name(layer) + ".routed"),
        weight_(add_parameter(make_parameter(context, plan, router_name(layer) + ".weight"))) {
    const std::string bias = router_name(layer) + ".bias";
    bias_ = &add_buffer(std::make_unique<nn::Buffer>(
        bias, lay_out({{.name = bias, .rows = kExperts}}, context.layout()), DType::Double));
    declare_scalar({.name = kRouterLoss,
                    .kind = nn::ScalarKind::kLoss,
                    .count = [](const Batch& b) { return counted_rows(b).sum(kAccumulationDType); },
                    .coefficient = 0.01});
    declare_scalar({.name = "router entropy", .kind = nn::ScalarKind::kMean});
    declare_scalar({.name = "largest router logit", .kind = nn::ScalarKind::kMax});
    declare_scalar({.name = routed_, .size = kExperts});
  }
  Tensor forward(const Tensor& x_th, nn::StepContext& step) {
    const Tensor weight_eh = ops::as_graph_tensor(weight_);
    const Tensor logits_te = x_th.matmul(weight_eh.t());
    const Tensor p_te = logits_te.softmax(1);
    const Tensor chosen_t1 = p_te.detach().add(bias_->data()).argmax(1, /*keepdim=*/true);
    const nn::Share share = share_of_rows(context_);
    step.add_max("largest router logit", logits_te.max());
    step.add_mean("router entropy", p_te.mul(p_te.log()).sum().neg(),
                  tensor::scalar(static_cast<double>(p_te.size(0)), kAccumulationDType), share);
    Tensor routed_te = tensor::zeros(p_te.sizes(), kAccumulationDType);
    routed_te.scatter_(1, chosen_t1, 1.0);
    step.add_sum(routed_, routed_te.sum(0), share);
    const Tensor y_th = x_th.mul(p_te.gather(1, chosen_t1).add(1.0));
    const Tensor mask_t = context_.take_local_rows(counted_rows(step.batch)).to(x_th.scalar_type());
    const Tensor loss = logits_te.logsumexp(1).square().mul(mask_t).sum();
    return join_loss(context_, y_th, kRouterLoss, loss, step);
  }

 private:
  // Towards equal loads: what was chosen more often than the others is chosen less.
  void commit_own(const nn::StepOutcome& outcome) override {
    const Tensor load_e = outcome.sum_of(routed_);
    const Tensor bias_e = bias_->data();
    outcome.update(bias_e, bias_e.add(load_e.mean().sub(load_e).sign(), kBiasRate));
  }

  LeafContext context_;
  std::string routed_;
  nn::Parameter& weight_;
  nn::Buffer* bias_;
};

class RoutedGpt final : public nn::Stage {
 public:
  // `recompute`: layers keep their inputs alone.
  RoutedGpt(const config::ModelConfig& config, const LeafContext& context,
            const config::StagePlan& stage, bool recompute)
      : config_(config),
        context_(context),
        plan_(models::plan_stage(config, context.layout(), stage)),
        recompute_(recompute) {
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      Router::plan(plan_, context, config.hidden_size, layer);
    }
    const std::string word = "embedding.word_embeddings";
    if (stage.embedding) {
      embedding_ = &add_child(std::make_unique<models::GptEmbedding>(context_, plan_, config_));
    }
    const auto rotary = transformer::make_rotary(config_, context_.policy(), context_.device());
    const transformer::LayerSpec spec = transformer::layer_specs(config_).at(0);
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      decoder_.push_back(&add_child(std::make_unique<transformer::TransformerLayer>(
          context_, plan_, "decoder.layers." + std::to_string(layer), config_, spec,
          rotary.of(spec.mixer),
          std::make_unique<transformer::LayerSaves>(config_, nullptr,
                                                    transformer::OffloadPlan(config_, 0), 0),
          layer - stage.first_layer)));
      routers_.push_back(&add_child(std::make_unique<Router>(context_, plan_, layer)));
    }
    if (stage.loss) {
      head_ = &add_child(std::make_unique<models::GptHead>(
          context_, plan_, config_, word,
          embedding_ != nullptr ? &embedding_->word_weight() : nullptr));
    }
  }
  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& step) override {
    int position = 0;
    Tensor hidden_th;
    if (embedding_ != nullptr) {
      hidden_th = nn::run_unit(
          position++, Tensor(), step,
          [this](const Tensor&, nn::StepContext& inner) { return embedding_->forward(inner); });
    } else {
      hidden_th = input.at(0).tensor;
    }
    for (std::size_t i = 0; i < decoder_.size(); ++i) {
      const auto layer = [this, i](const Tensor& x_th, nn::StepContext& inner) {
        return routers_[i]->forward(decoder_[i]->forward(x_th, inner), inner);
      };
      hidden_th = nn::run_unit(position++, hidden_th, step,
                               [this, layer](const Tensor& x_th, nn::StepContext& inner) {
                                 return nn::recomputed(recompute_, x_th, inner, layer);
                               });
    }
    if (head_ == nullptr) return {{"hidden", hidden_th, true}};
    const Tensor loss = nn::run_unit(
        position, hidden_th, step,
        [this](const Tensor& x_th, nn::StepContext& inner) { return head_->loss(x_th, inner); });
    return {{"lm loss", loss, true}};
  }
  nn::BundleSpec input_spec(const Batch& batch) const override {
    return embedding_ != nullptr ? nn::BundleSpec{} : edge(batch);
  }
  nn::BundleSpec output_spec(const Batch& batch) const override {
    return head_ != nullptr ? nn::BundleSpec{} : edge(batch);
  }
  std::vector<nn::Unit> units() override {
    std::vector<nn::Unit> units;
    if (embedding_ != nullptr) units.push_back({"embedding", embedding_->parameters()});
    for (std::size_t i = 0; i < decoder_.size(); ++i) {
      units.push_back({"layer", decoder_[i]->parameters()});
      for (nn::Parameter* p : routers_[i]->parameters()) units.back().parameters.push_back(p);
    }
    if (head_ != nullptr) units.push_back({"head", head_->parameters()});
    return units;
  }

 private:
  nn::BundleSpec edge(const Batch& batch) const {
    return {{"hidden",
             {context_.local_rows(batch.num_tokens()).size, config_.hidden_size},
             context_.policy().compute,
             true}};
  }

  config::ModelConfig config_;
  LeafContext context_;
  nn::ParameterPlan plan_;
  bool recompute_;
  models::GptEmbedding* embedding_ = nullptr;
  std::vector<transformer::TransformerLayer*> decoder_;
  std::vector<Router*> routers_;
  models::GptHead* head_ = nullptr;
};

struct LedgerLayout {
  const char* name;
  Layout layout;
  bool sequence_parallel = false;
  std::int64_t micro_batch_size = 2;
  bool recompute = false;
};

config::RunConfig config_of(const LedgerLayout& layout) {
  return tiny_config(layout.layout, [&](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.training.micro_batch_size = layout.micro_batch_size;
    c.parallel.sequence_parallel = layout.sequence_parallel;
    c.optimizer.adam_eps = 1e-3;
    c.logging.log_max_attention_logit = true;
  });
}

// Everything of a run that must not depend on the layout, from rank 0 (buffers from all ranks).
struct RoutedRun {
  std::vector<std::map<std::string, double>> steps;
  Tensors gradients;
  Tensors weights;
  Tensors biases;
};

void with_routed(const LedgerLayout& layout, const std::function<void(Engine&)>& body) {
  const config::RunConfig config = config_of(layout);
  with_engine(config, body,
              [&](comm::ParallelContext&, const LeafContext& leaf, const config::StagePlan& stage) {
                return std::make_unique<RoutedGpt>(config.model, leaf, stage, layout.recompute);
              });
}

RoutedRun run_routed(const LedgerLayout& layout) {
  RoutedRun run;
  std::mutex mutex;
  with_routed(layout, [&](Engine& engine) {
    const bool first = engine.context().rank() == 0;
    (void)engine.forward_backward(micro_batches(engine, 0));
    Tensors gradients = engine.gather_gradients();
    std::vector<std::map<std::string, double>> steps;
    for (std::int64_t step = 0; step < 4; ++step) {
      const StepResult result = engine.train_step(micro_batches(engine, step), 0.01, kWeightDecay);
      EXPECT_FALSE(result.skipped);
      for (const nn::StepScalar& scalar : result.scalars) {
        if (steps.size() == static_cast<std::size_t>(step)) steps.emplace_back();
        steps.back()[scalar.name] = scalar.value;
      }
    }
    Tensors weights = engine.gather_parameters();
    const std::lock_guard lock(mutex);
    for (const nn::Buffer* buffer : engine.stages().buffers()) {
      const auto [found, is_new] = run.biases.emplace(buffer->local_name(), buffer->data().clone());
      EXPECT_TRUE(found->second.equal(buffer->data())) << "ranks differ in " << found->first;
    }
    if (!first) return;
    run.steps = std::move(steps);
    run.gradients = std::move(gradients);
    run.weights = std::move(weights);
  });
  return run;
}

void expect_near(const Tensors& found, const Tensors& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const double scale = std::max(values.abs().max().item<double>(), 1e-3);
    EXPECT_LE(found.at(name).sub(values).abs().max().item<double>(), tolerance * scale) << name;
  }
}

const LedgerLayout kAlone{.name = "alone", .layout = {}};
const RoutedRun& alone() {
  static const RoutedRun kRun = run_routed(kAlone);
  return kRun;
}

class LedgerParity : public testing::TestWithParam<LedgerLayout> {};

TEST_P(LedgerParity, EveryNumberEqualsOneProcesss) {
  const RoutedRun run = run_routed(GetParam());
  ASSERT_EQ(run.steps.size(), alone().steps.size());
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    ASSERT_EQ(run.steps[step].size(), alone().steps[step].size());
    for (const auto& [name, value] : alone().steps[step]) {
      EXPECT_NEAR(run.steps[step].at(name), value, 1e-10 * std::abs(value))
          << name << " of step " << step;
    }
  }
  expect_near(run.gradients, alone().gradients, 1e-9);
  expect_near(run.weights, alone().weights, 1e-7);
  // Steps of one size and a sign: equal to the last bit.
  EXPECT_EQ(first_difference(run.biases, alone().biases), "");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, LedgerParity,
    testing::Values(LedgerLayout{"tensor2", {.tp = 2}}, LedgerLayout{"sequence2", {.tp = 2}, true},
                    LedgerLayout{"pipeline2", {.pp = 2}}, LedgerLayout{"data2", {.dp = 2}},
                    LedgerLayout{"sharded4", {.dp = 4, .sharded = true}},
                    LedgerLayout{"micro_batch1", {}, false, 1},
                    LedgerLayout{"micro_batch8", {}, false, 8},
                    LedgerLayout{"recompute", {}, false, 2, true},
                    LedgerLayout{
                        "all8", {.tp = 2, .pp = 2, .dp = 2, .sharded = true}, true, 1, true}),
    [](const testing::TestParamInfo<LedgerLayout>& param) { return param.param.name; });

// The reference is worth something: losses have different counts, the auxiliary one trains, biases
// move and choose.
TEST(Ledger, OneProcessHasWhatTheLayoutsAreComparedWith) {
  const std::map<std::string, double>& step = alone().steps.at(1);
  EXPECT_EQ(step.at("router loss count"), kGlobalBatch * kSequence / 2 * 1.0);
  EXPECT_NE(step.at("lm loss count"), step.at("router loss count"));
  EXPECT_GT(step.at("router loss"), 0);
  EXPECT_LT(alone().steps.back().at("router loss"), alone().steps.front().at("router loss"));
  EXPECT_GT(step.at("router entropy"), 0);
  EXPECT_LE(step.at("router entropy"), std::log(kExperts));
  EXPECT_TRUE(step.contains("max attention logit"));
  ASSERT_EQ(alone().biases.size(), 2U);
  for (const auto& [name, bias_e] : alone().biases) {
    EXPECT_GT(bias_e.abs().max().item<double>(), 0) << name;
  }
}

// A step that makes no update commits nothing, and the same step again gives the same numbers.
TEST(Ledger, ASkippedStepCommitsNothing) {
  const auto values = [](Engine& engine) {
    Tensors found;
    for (const nn::Buffer* b : engine.stages().buffers())
      found[b->local_name()] = b->data().clone();
    return found;
  };
  with_routed({.name = "data2", .layout = {.dp = 2}}, [&](Engine& engine) {
    (void)train_steps(engine, 0, 1);
    const Tensors before = values(engine);
    std::vector<Batch> bad = micro_batches(engine, 7);
    if (engine.context().rank() == 1) bad.back().loss_mask().select(0, 0).fill_(std::nan(""));
    EXPECT_TRUE(engine.train_step(bad, 0.01, kWeightDecay).skipped);
    EXPECT_EQ(first_difference(values(engine), before), "");
    (void)train_steps(engine, 1, 2);
    EXPECT_NE(first_difference(values(engine), before), "");
  });
}

}  // namespace
}  // namespace pentatron::training
