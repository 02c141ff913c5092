// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "apps/command.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/tokenizers/tokenizer.h"

// What the commands that run a checkpoint's model share: its options, its ranks, its tokenizer.
namespace pentatron::apps {

// `more`, then the options that say which model, where and how.
[[nodiscard]] std::vector<Flags::Spec> with_model_flags(std::vector<Flags::Spec> more);

// `body` on every rank that the layout asks for, as threads of this process or as the process that
// a launcher started, with what load_model() needs there (a backend too). `command` names itself
// in messages.
using RankBody = std::function<void(const inference::LoadOptions& load)>;
void on_model_ranks(const std::string& command, const Flags& flags, const RankBody& body);

// The tokenizer that the model was trained with, its files where the options or the checkpoint say.
// Another one: kData.
[[nodiscard]] std::unique_ptr<tokenizers::Tokenizer> model_tokenizer(
    const Flags& flags, const inference::LoadedModel& model);

// Its file or folder: --tokenizer-model, or as trained; empty for tokenizers of other files.
[[nodiscard]] std::filesystem::path tokenizer_path(const Flags& flags,
                                                   const inference::LoadedModel& model);

}  // namespace pentatron::apps
