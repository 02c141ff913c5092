// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/checkpoint/hugging_face_reader.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/nn/local_stages.h"

namespace pentatron::inference {

// The weights of a model on disk and what is known of it, before anything of it is built.
struct StoredWeights {
  config::RunConfig config;  // that they were saved with
  std::int64_t iteration = 0;
  std::filesystem::path folder;  // of this iteration; empty: a Hugging Face folder
  std::string tokenizer;  // identity hash of the tokenizer it was trained with; empty: not recorded
  std::vector<std::string> tokenizer_problems;  // with the tokenizer's files in `folder`
  std::unique_ptr<checkpoint::CheckpointReader> checkpoint;  // one of the two
  std::unique_ptr<checkpoint::HuggingFaceReader> hugging_face;

  // That the files hold the weights of this model (resolved): check_stored_model().
  void check(const config::ModelConfig& model) const;
  // Weights and Buffers of this rank's part of the model; collective over the world. Tensors that
  // are not the model's: kCheckpoint, naming them.
  void read_into(nn::LocalStages& stages, comm::ParallelContext& context);
};

// `root`: a --save folder (`step` 0: its newest checkpoint whose files are whole), one iteration's
// folder, or a Hugging Face folder (errors of open_hugging_face() besides). No checkpoint, or a
// damaged one: kCheckpoint, naming the `option` that asked for it. Every rank looks for itself, and
// all find the same.
[[nodiscard]] StoredWeights open_weights(const std::filesystem::path& root, std::int64_t step = 0,
                                         std::string_view option = "--load");

}  // namespace pentatron::inference
