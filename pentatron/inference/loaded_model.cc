// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/loaded_model.h"

#include "pentatron/base/error.h"
#include "pentatron/config/validate.h"
#include "pentatron/inference/stored_weights.h"
#include "pentatron/models/registry.h"

namespace pentatron::inference {
namespace {

// The configuration that weights were saved with, in the layout asked for.
config::RunConfig in_layout(config::RunConfig config, const LoadOptions& options,
                            std::int64_t world_size) {
  config.parallel = config::ParallelConfig{};
  config.parallel.world_size = world_size;
  config.parallel.tensor_model_parallel_size = options.tensor_model_parallel_size;
  config.parallel.pipeline_model_parallel_size = options.pipeline_model_parallel_size;
  const std::int64_t tp = options.tensor_model_parallel_size;
  if (config.model.pad_vocab_in_softmax) {
    PENTATRON_CHECK(config.model.padded_vocab_size % tp == 0, kConfig,
                    "the model's {} vocabulary rows (--pad-vocab-in-softmax) do not divide by "
                    "--tensor-model-parallel-size {}: choose a divisor",
                    config.model.padded_vocab_size, tp);
  } else {
    // Shapes in the checkpoint are the true ones: padding is only what the ranks need.
    config.model.padded_vocab_size = (config.model.vocab_size + tp - 1) / tp * tp;
  }
  config.model.recompute_granularity.clear();  // nothing is kept for a backward
  if (!options.precision.empty()) config.training.precision = options.precision;
  config::resolve(config, config::Purpose::kModel);
  return config;
}

// Everything but the weights; `config` is in_layout().
LoadedModel make_model(config::RunConfig config, std::unique_ptr<comm::Backend> own,
                       comm::Backend& backend, const LoadOptions& options) {
  LoadedModel model;
  model.backend = std::move(own);
  model.config = std::move(config);
  model.device = options.device;
  model.policy = precision_policy(model.config.training.precision);
  const config::ModelConfig& shape = model.config.model;
  model.context = std::make_unique<comm::ParallelContext>(
      backend, comm::make_grids(model.config.parallel), "generate");
  static_cast<void>(model.context->second_group("pp"));
  const parallel_layers::LeafContext leaf_context = parallel_layers::make_leaf_context(
      *model.context, /*sequence_parallel=*/false, model.policy, options.device);
  const config::StagePlan plan = config::plan_pipeline(shape, model.config.parallel)
                                     .at(static_cast<std::size_t>(model.context->coordinate("pp")));
  model.stages = std::make_unique<nn::LocalStages>();
  model.stages->add(options.make_stage
                        ? options.make_stage(leaf_context, plan)
                        : models::make_stage(models::model_kind(shape), shape, leaf_context, plan));
  return model;
}

}  // namespace

LoadedModel load_model(const std::filesystem::path& root, const LoadOptions& options) {
  std::unique_ptr<comm::Backend> own;
  if (options.backend == nullptr) own = comm::make_single_backend();
  comm::Backend& backend = options.backend != nullptr ? *options.backend : *own;
  StoredWeights stored = open_weights(root, options.step);
  config::RunConfig config = in_layout(stored.config, options, backend.world_size());
  // A stage of the caller's has its own plan.
  if (!options.make_stage) stored.check(config.model);
  LoadedModel model = make_model(std::move(config), std::move(own), backend, options);
  model.tokenizer_problems = std::move(stored.tokenizer_problems);
  model.iteration = stored.iteration;
  model.folder = stored.folder;
  model.tokenizer = stored.tokenizer;
  stored.read_into(*model.stages, *model.context);
  return model;
}

}  // namespace pentatron::inference
