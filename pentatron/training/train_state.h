// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/config/config.h"

namespace pentatron::training {

// What a checkpoint remembers besides tensors; all of it enters the state hash.
struct TrainState {
  std::int64_t iteration = 0;
  std::int64_t consumed_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  std::int64_t num_updates = 0;  // optimizer steps that were made (Adam's t)
  std::int64_t skipped_iterations = 0;
  std::int64_t nan_iterations = 0;
  std::string data_identity;  // hash of what decides the order of the data
  std::string model;     // canonical JSON of what decides the shape of the parameters and the loss
  std::string schedule;  // canonical JSON of learning rate and weight decay schedules
};

[[nodiscard]] std::string to_json_text(const TrainState& state);
// ErrorKind::kCheckpoint for anything that is not such a text.
[[nodiscard]] TrainState parse_train_state(const std::string& text);

// Canonical texts, compared word for word on resume; differences are named field by field.
[[nodiscard]] std::string model_identity(const config::ModelConfig& model);
[[nodiscard]] std::string schedule_identity(const config::RunConfig& config);
// "hidden_size 64 in the checkpoint, 128 asked; ..." or empty when equal.
[[nodiscard]] std::string json_differences(const std::string& saved, const std::string& asked);

}  // namespace pentatron::training
