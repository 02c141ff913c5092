// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "pentatron/config/parser.h"

namespace pentatron::training {

// What a checkpoint says of the run that saved it.
struct SavedOptions {
  config::RunConfig config;
  std::filesystem::path folder;  // of the iteration
};

// `root`: a --save folder or one iteration's; `step` > 0 asks for that one. Only the manifest is
// read. Nothing when no checkpoint is there; errors of checkpoint::find_checkpoint().
[[nodiscard]] std::optional<SavedOptions> saved_options(const std::filesystem::path& root,
                                                        std::int64_t step);

// The options that --use-checkpoint-args takes from the checkpoint that --load names. Nothing
// without that option, without --load, or when no checkpoint is there, where Megatron-LM goes on
// with the options as given. Taken are
// - the model's: what tells one model from another (config::Resume::kModel), sequence length,
//   grouping of queries and dropout;
// - the tokenizer's, its files the checkpoint's own copies, unless
//   --no-use-tokenizer-model-from-checkpoint-args or a --tokenizer-type of the user's is there;
// - with --use-mp-args-from-checkpoint-args tensor, pipeline and expert parallel sizes and, unless
//   the user sets a pipeline size, what each stage holds.
// Megatron-LM's load_args_from_checkpoint() takes fewer (its formula options stay at their
// defaults), and lets most of them win over the command line; here the user's word wins and is
// compared with the checkpoint when that is loaded.
[[nodiscard]] std::optional<config::ValueLayer> checkpoint_layer(const config::EarlyValue& value);

}  // namespace pentatron::training
