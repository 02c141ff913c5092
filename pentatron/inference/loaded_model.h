// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/inference/model_runner.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::inference {

// A model with the weights of a checkpoint, whatever layout saved it: whole on one rank, or this
// rank's part of it.
struct LoadedModel {
  config::RunConfig config;  // of the checkpoint, with the layout asked for
  std::int64_t iteration = 0;
  std::filesystem::path folder;  // of this iteration; empty: a Hugging Face folder
  std::string tokenizer;  // identity hash of the tokenizer it was trained with; empty: not recorded
  // What is wrong with the tokenizer's files in `folder`, for whoever means to use them.
  std::vector<std::string> tokenizer_problems;
  PrecisionPolicy policy;
  Device device = kCpu;
  std::unique_ptr<comm::Backend> backend;  // of one rank; null: the caller's
  std::unique_ptr<comm::ParallelContext> context;
  std::unique_ptr<nn::LocalStages> stages;
  [[nodiscard]] ModelRunner runner() const { return {config, *stages, *context, policy, device}; }
};

// Makes one of this rank's stages.
using StageFactory = std::function<std::unique_ptr<nn::Stage>(
    const parallel_layers::LeafContext& context, const config::StagePlan& plan)>;

struct LoadOptions {
  std::int64_t step = 0;         // 0: the newest checkpoint of a --save folder
  std::string precision;         // empty: as it was trained
  Device device = kCpu;          // where weights and Buffers lie
  StageFactory make_stage = {};  // another stage than the model registry's
  // Ranks that share the model, all of them on `backend`; null: this one alone.
  comm::Backend* backend = nullptr;
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
};

// `root`: a --save folder, one iteration's folder, or a Hugging Face folder (errors of
// open_hugging_face() besides). No checkpoint, a damaged one, or one whose
// tensors are not the model's (they are named): kCheckpoint; an unknown precision, or a layout that
// does not fit the model or the backend: kConfig.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& root,
                                     const LoadOptions& options = {});

}  // namespace pentatron::inference
