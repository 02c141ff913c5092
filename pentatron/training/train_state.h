// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/loss_scaler.h"

namespace pentatron::training {

// What a checkpoint remembers besides tensors; all of it enters the state hash.
struct TrainState {
  std::int64_t iteration = 0;
  std::int64_t consumed_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  std::int64_t num_updates = 0;  // optimizer steps that were made (Adam's t)
  // Samples of those steps: what the learning-rate schedule has come to. Steps that were left out
  // do not move it.
  std::int64_t scheduler_samples = 0;
  std::int64_t skipped_train_samples = 0;  // passed over by --iterations-to-skip
  std::int64_t skipped_iterations = 0;
  std::int64_t nan_iterations = 0;
  optimizer::LossScaler::State loss_scaler = {};
  double largest_loss = 0;       // seen by --check-for-spiky-loss
  double largest_grad_norm = 0;  // seen by --check-for-large-grads
  std::string data_identity;     // hash of what decides the order of the data
  // Hashes of the training tokens themselves (datasets::ContentHash), empty where not computed: by
  // checkpoints of older versions, and mostly for the whole.
  std::string data_sampled = {};
  std::string data_whole = {};
  // Samples that the order was drawn for; 0: not known (older versions).
  std::int64_t train_samples_asked = 0;
  // The smaller numbers that it was drawn for before epochs were appended (--append-epochs).
  std::vector<std::int64_t> train_samples_before = {};
  // Of a run that is to go on with epochs appended: the data's identity without these. Not saved.
  std::string data_identity_before = {};
  std::string model;      // canonical JSON of what decides parameter shapes and formulas
  std::string run;        // canonical JSON of seed, dropout and precision; free for --finetune
  std::string schedule;   // canonical JSON of learning rate and weight decay schedules
  std::string tokenizer;  // identity hash
  bool finetune = false;  // the run began with --finetune
};

[[nodiscard]] std::string to_json_text(const TrainState& state);
// ErrorKind::kCheckpoint for anything that is not such a text.
[[nodiscard]] TrainState parse_train_state(const std::string& text);

// A model identity without the options of adapters.
[[nodiscard]] std::string without_adapter_options(const std::string& identity);
// Of a model's identity what is the model itself, and what says how it is computed
// (config::Resume::kNumerics).
[[nodiscard]] std::string without_numerics(const std::string& identity);
[[nodiscard]] std::string numerics_alone(const std::string& identity);
// Canonical texts, compared word for word on resume; differences are named field by field. The
// first two hold the options whose rows say so (config::Resume); the third has Megatron's saved
// keys, with steps counted in samples.
[[nodiscard]] std::string model_identity(const config::RunConfig& config);
[[nodiscard]] std::string run_identity(const config::RunConfig& config);
[[nodiscard]] std::string schedule_identity(const config::RunConfig& config);
// The learning-rate and weight-decay schedule of a saved identity, put into `config`
// (--use-checkpoint-opt_param-scheduler). Another text than a schedule's: ErrorKind::kCheckpoint.
void apply_schedule(const std::string& saved, config::RunConfig& config);
// The identity without the keys of learning rate and weight decay: what stays to be compared then.
[[nodiscard]] std::string without_schedule_keys(const std::string& identity);
// A saved identity with what it does not say added from `born`, that of a RunConfig as it is born:
// options that are younger than the checkpoint were not given then.
[[nodiscard]] std::string with_later_options(const std::string& identity, const std::string& born);
// "hidden_size 64 in the checkpoint, 128 asked; ..." or empty when equal.
[[nodiscard]] std::string json_differences(const std::string& saved, const std::string& asked);

}  // namespace pentatron::training
