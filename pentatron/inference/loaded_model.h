// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/inference/generator.h"
#include "pentatron/nn/stage.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::inference {

// A whole model on one rank with the weights of a checkpoint, whatever layout saved it.
struct LoadedModel {
  config::RunConfig config;  // of the checkpoint
  std::int64_t iteration = 0;
  std::string tokenizer;  // identity hash of the tokenizer it was trained with; empty: not recorded
  PrecisionPolicy policy;
  Device device = Device("cpu");
  std::unique_ptr<comm::Backend> backend;
  std::unique_ptr<comm::ParallelContext> context;
  std::unique_ptr<nn::Stage> stage;
  [[nodiscard]] CacheShape cache_shape() const;
};

// `root`: a --save folder (step 0: its newest checkpoint) or one iteration's folder. `precision`:
// "" as it was trained. The weights lie on `device`. No or a damaged checkpoint: kCheckpoint; an
// unknown precision: kConfig.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& root, std::int64_t step,
                                     const std::string& precision, Device device = Device("cpu"));

}  // namespace pentatron::inference
