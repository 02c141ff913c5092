// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/inference/generator.h"
#include "pentatron/nn/stage.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::inference {

// A whole model on one rank with the weights of a checkpoint, whatever layout saved it.
struct LoadedModel {
  config::RunConfig config;  // of the checkpoint
  std::int64_t iteration = 0;
  std::string tokenizer;  // identity hash of the tokenizer it was trained with; empty: not recorded
  PrecisionPolicy policy;
  Device device = kCpu;
  std::unique_ptr<comm::Backend> backend;
  std::unique_ptr<comm::ParallelContext> context;
  std::unique_ptr<nn::Stage> stage;
  [[nodiscard]] CacheShape cache_shape() const;
};

// Makes the whole model's stage.
using StageFactory =
    std::function<std::unique_ptr<nn::Stage>(const parallel_layers::LeafContext& context)>;

// `root`: a --save folder (step 0: its newest checkpoint) or one iteration's folder. `precision`:
// "" as it was trained. Weights and Buffers lie on `device`. `make_stage`: another stage than the
// model registry's. No checkpoint, a damaged one, or one whose tensors are not the model's (they
// are named): kCheckpoint; an unknown precision: kConfig.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& root, std::int64_t step,
                                     const std::string& precision, Device device = kCpu,
                                     const StageFactory& make_stage = {});

}  // namespace pentatron::inference
