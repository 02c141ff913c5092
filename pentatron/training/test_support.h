// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "pentatron/base/philox.h"
#include "pentatron/comm/backend.h"
#include "pentatron/config/validate.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/sample_batch.h"
#include "pentatron/datasets/text_sample.h"
#include "pentatron/training/data.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/train_state.h"

// The tiny runs of this module's tests. Only tests include it.
namespace pentatron::training::testing_support {

inline constexpr std::int64_t kVocabulary = 61;  // padded to 64
inline constexpr std::int64_t kSequence = 16;
inline constexpr std::int64_t kGlobalBatch = 8;
inline constexpr double kWeightDecay = 0.1;

struct Layout {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  bool sharded = false;
};

using ChangeConfig = std::function<void(config::RunConfig&)>;

// A GPT-2 kind of two layers with dropout; `change` comes before the derived fields are resolved.
inline config::RunConfig tiny_config(const Layout& layout = {}, const ChangeConfig& change = {}) {
  config::RunConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 32;
  config.model.num_attention_heads = 4;
  config.model.max_position_embeddings = kSequence;
  config.model.seq_length = kSequence;
  config.model.make_vocab_size_divisible_by = 8;
  config.model.init_method_std = 0.1;
  config.parallel.world_size = layout.tp * layout.pp * layout.dp;
  config.parallel.tensor_model_parallel_size = layout.tp;
  config.parallel.pipeline_model_parallel_size = layout.pp;
  config.parallel.use_distributed_optimizer = layout.sharded;
  config.parallel.distributed_backend = "threads";
  config.training.micro_batch_size = 2;
  config.training.global_batch_size = kGlobalBatch;
  config.training.train_iters = 20;
  config.optimizer.lr = 0.01;
  config.optimizer.weight_decay = kWeightDecay;
  if (change) change(config);
  config.training.eval_global_batch_size = config.training.global_batch_size;
  config.training.eval_micro_batch_size = config.training.micro_batch_size;
  config::resolve(config, config::Purpose::kModel);
  config::resolve_vocab(config, kVocabulary);
  return config;
}

// A sample of `rows` tokens, the first `cut` of them a document of their own (0: one document).
// `token(t)` is that of row t and the label of the row before.
inline datasets::Sample make_sample(std::int32_t rows, std::int32_t cut,
                                    const std::function<std::int64_t(std::int64_t)>& token,
                                    const std::function<bool(std::int64_t)>& masked) {
  datasets::SampleSequence sequence;
  std::vector<std::int64_t> tokens, labels;
  std::vector<float> mask;
  for (std::int32_t t = 0; t < rows; ++t) {
    tokens.push_back(token(t));
    labels.push_back(token(t + 1));
    mask.push_back(masked(t) ? 0.0F : 1.0F);
    sequence.positions.push_back(t < cut ? t : t - cut);
  }
  if (cut > 0) sequence.runs.push_back(cut);
  sequence.runs.push_back(rows - cut);
  return datasets::text_sample(std::move(sequence), std::move(tokens), std::move(labels),
                               std::move(mask));
}
// Random ones, the same in every run.
inline std::int64_t random_token(std::uint64_t stream, std::int64_t key) {
  return static_cast<std::int64_t>(philox_uniform(1, stream, static_cast<std::uint64_t>(key)) *
                                   kVocabulary);
}

// Samples of random tokens, each of two documents, whose masks differ from row to row; every
// seventh counts nothing.
class SyntheticSource final : public datasets::SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 1 << 20; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return kSequence; }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    const auto cut = static_cast<std::int32_t>(3 + i % 10);
    return make_sample(
        kSequence, cut, [i](std::int64_t t) { return random_token(77, i * (kSequence + 1) + t); },
        [i, cut](std::int64_t t) {
          return i % 7 == 5 || t == cut - 1 || (i % 3 == 1 && t % 4 != 0);
        });
  }
  [[nodiscard]] std::string identity() const override { return "synthetic"; }
};

// This data-parallel rank's micro-batches of a step (from 0).
inline std::vector<Batch> micro_batches(Engine& engine, std::int64_t step) {
  const SyntheticSource source;
  const config::RunConfig& config = engine.config();
  const datasets::GlobalBatchPlan plan(config.training.global_batch_size,
                                       config.training.micro_batch_size,
                                       config.parallel.data_parallel_size);
  std::vector<Batch> batches;
  for (std::vector<std::int64_t>& ids :
       plan.micro_batches(step * plan.global_batch_size(), engine.context().data_rank())) {
    batches.push_back(to_batch(datasets::make_batch(source, std::move(ids)), engine.policy()));
  }
  return batches;
}

// Steps [first, end) of a run; their losses.
inline std::vector<double> train_steps(Engine& engine, std::int64_t first, std::int64_t end) {
  std::vector<double> losses;
  for (std::int64_t step = first; step < end; ++step) {
    losses.push_back(
        engine.train_step(micro_batches(engine, step), engine.config().optimizer.lr, kWeightDecay)
            .loss);
  }
  return losses;
}

// Runs `body` on every rank of the configuration's layout, each a thread of this process.
// `make_stage`: see Engine; it may ask the context for the rank's place.
using StageMaker = std::function<std::unique_ptr<nn::Stage>(
    comm::ParallelContext&, const parallel_layers::LeafContext&, const config::StagePlan&)>;
inline void with_engine(const config::RunConfig& config, const std::function<void(Engine&)>& body,
                        const StageMaker& make_stage = {}) {
  comm::run_threads({.world_size = config.parallel.world_size,
                     .threads_per_rank = 1,
                     .timeout = std::chrono::milliseconds(60'000)},
                    [&](comm::Backend& backend) {
                      comm::ParallelContext context(backend, comm::make_grids(config.parallel));
                      StageFactory factory;
                      if (make_stage) {
                        factory = [&](const parallel_layers::LeafContext& leaf,
                                      const config::StagePlan& plan) {
                          return make_stage(context, leaf, plan);
                        };
                      }
                      Engine engine(config, context, kCpu, factory);
                      body(engine);
                    });
}

inline TrainState state_after(const config::RunConfig& config, std::int64_t iteration) {
  return {.iteration = iteration,
          .consumed_train_samples = iteration * config.training.global_batch_size,
          .num_updates = iteration,
          .data_identity = "corpus A",
          .model = model_identity(config),
          .run = run_identity(config),
          .schedule = schedule_identity(config),
          .tokenizer = "tokenizer A"};
}

using Tensors = std::map<std::string, Tensor>;

// To 1e-10 of each tensor's largest value, or of 1e-3 of all tensors' where that is more.
inline void expect_equal(const Tensors& a, const Tensors& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (const auto& [name, t] : b) largest = std::max(largest, t.abs().max().item<double>());
  for (const auto& [name, t] : b) {
    const double scale = std::max(t.abs().max().item<double>(), 1e-3 * largest);
    EXPECT_LE(a.at(name).sub(t).abs().max().item<double>(), 1e-10 * scale) << what << " " << name;
  }
}

// The largest difference, as a share of the largest value of `b`.
inline double worst_difference(const Tensors& a, const Tensors& b) {
  double largest = 0;
  double worst = 0;
  for (const auto& [name, t] : b) {
    largest = std::max(largest, t.abs().max().item<double>());
    worst = std::max(worst, a.at(name).sub(t).abs().max().item<double>());
  }
  return worst / largest;
}

// Name of a tensor that is missing or not equal bit for bit; empty when all are equal.
inline std::string first_difference(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return "another number of tensors";
  for (const auto& [name, values] : a) {
    const auto found = b.find(name);
    if (found == b.end() || !values.equal(found->second)) return name;
  }
  return {};
}

}  // namespace pentatron::training::testing_support
