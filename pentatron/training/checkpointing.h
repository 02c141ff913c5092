// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pentatron/checkpoint/folder_lock.h"
#include "pentatron/training/data.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/train_state.h"

namespace pentatron::training {

// Saves the engine's state, its loss scaler's too, under config.checkpoint.save. Collective over
// the world; prints Megatron's two lines on the last rank. Errors: those of
// checkpoint::save_checkpoint, on all ranks. `lock`: rank 0's on the folder; null: taken for this
// save alone. `tokenizer_files`: rank 0's (tokenizers::read_tokenizer_files), kept in the
// checkpoint.
void save_engine(Engine& engine, const TrainState& state, std::int64_t protect_iteration,
                 checkpoint::FolderLock* lock = nullptr,
                 const std::vector<std::pair<std::string, std::string>>& tokenizer_files = {});

// kIo on all ranks unless the file system of config.checkpoint.save has room for a checkpoint of
// the engine. Collective over the world.
void check_room_for_save(Engine& engine);

// Every rank must hold the same text: a kConfig error on all ranks that names the first that
// differs (collective over the world).
void check_agreement(comm::ParallelContext& context, const std::string& mine, const char* what);

// Every rank must read the same corpora, .bin contents included: a kConfig error on all ranks that
// names rank and file (collective over the world).
void check_same_data(comm::ParallelContext& context, const std::vector<DataFile>& files);

// Where the checkpoint that --load will find stands, read before the data is built; zeros where
// there is none and with --finetune. Errors as load_engine()'s.
[[nodiscard]] ResumePoint resume_point(const config::CheckpointConfig& options);

struct LoadResult {
  bool loaded = false;
  TrainState state;             // of the checkpoint; zero counters with --finetune or from scratch
  std::int64_t iteration = -1;  // that the checkpoint was of
};

// Applies the rules of --load (design promise 4): equal to --save with nothing there: from scratch,
// saying so; like a checkpoint but none valid, or nothing at another place: kCheckpoint. Refuses
// (the same kind) another model, other data (unless --finetune) and other schedules (unless
// --override-opt_param-scheduler or --use-checkpoint-opt_param-scheduler). A damaged checkpoint is
// passed over for the next older, with a warning, on all ranks alike. With --finetune and equal
// --load and --save a checkpoint of a fine-tuning run is that run's own, which goes on. `asked`
// holds this run's identities.
[[nodiscard]] LoadResult load_engine(Engine& engine, const TrainState& asked);

}  // namespace pentatron::training
