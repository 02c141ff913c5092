// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/checkpoint/peft_adapter.h"
#include "pentatron/config/parser.h"
#include "pentatron/training/engine.h"

// --lora-load: adapters in PEFT's files, on the model of --load.
namespace pentatron::training {

// The options that the adapter in `folder` asks for, below what a user says: rank, alpha, dropout
// and modules of an adapter to the model of `load` (a Hugging Face folder, or a folder of
// checkpoints and the iteration, 0: the newest). Errors: those of checkpoint::PeftAdapter, and
// kCheckpoint where nothing can be loaded.
[[nodiscard]] config::ValueLayer adapter_layer(const std::string& folder, const std::string& load,
                                               std::int64_t step);

// The engine's adapters become those of config.checkpoint.lora_load; what has none there keeps its
// initial values. Prints a line on the last rank. Errors: those of checkpoint::PeftAdapter;
// kConfig for an adapter of a linear layer that --lora-target-modules leaves out, or of another
// kind (DoRA or not).
void load_adapter(Engine& engine);

}  // namespace pentatron::training
