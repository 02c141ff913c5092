// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pentatron/config/pipeline_layout.h"
#include "pentatron/models/model_test_support.h"

// Tiny models with random weights in any layout. Only tests include it.
namespace pentatron::inference::test_support {

using pentatron::test_support::gpt2_kind;
using pentatron::test_support::llama_kind;

// This rank's part of one.
struct TinyModel {
  const config::RunConfig& run_config;
  nn::LocalStages& stages;
  comm::ParallelContext& context;
  const PrecisionPolicy& policy;
};

struct Layout {
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t chunks = 1;
  bool sequence_parallel = false;
};

// `body` on every rank of the layout, for a model kind.
inline void with_model(const std::string& precision, const config::ModelConfig& kind,
                       const Layout& layout, const std::function<void(const TinyModel&)>& body) {
  const PrecisionPolicy policy = precision_policy(precision);
  config::RunConfig config;
  config.model = kind;
  config.model.max_position_embeddings = 48;
  config.model.hidden_dropout = 0.5;  // never applied here
  config.model.attention_dropout = 0.5;
  config.parallel.world_size = layout.tp * layout.pp;
  config.parallel.tensor_model_parallel_size = layout.tp;
  config.parallel.pipeline_model_parallel_size = layout.pp;
  config.parallel.sequence_parallel = layout.sequence_parallel;
  if (layout.chunks > 1) config.parallel.num_virtual_stages_per_pipeline_rank = layout.chunks;
  const pentatron::test_support::Tensors weights =
      pentatron::test_support::random_weights(config.model);
  const std::vector<config::StagePlan> plans = config::plan_pipeline(config.model, config.parallel);
  comm::run_threads({.world_size = config.parallel.world_size}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, comm::make_grids(config.parallel));
    const parallel_layers::LeafContext leaf =
        parallel_layers::make_leaf_context(context, layout.sequence_parallel, policy);
    nn::LocalStages stages;
    for (std::int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
      const auto stage = static_cast<std::size_t>(chunk * layout.pp + context.coordinate("pp"));
      stages.add(models::make_stage("gpt", config.model, leaf, plans.at(stage)));
      pentatron::test_support::load(stages.at(static_cast<int>(chunk)), weights);
    }
    body(TinyModel{config, stages, context, policy});
  });
}

}  // namespace pentatron::inference::test_support
