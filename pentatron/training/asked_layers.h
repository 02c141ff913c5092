// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/config/parser.h"

namespace pentatron::training {

// Options that others give: a published model's (--model-preset), the checkpoint's
// (--use-checkpoint-args, saved_options.h), and the model and tokenizer of a Hugging Face folder
// (--load with --finetune, --pretrained-checkpoint). For config::ParseRequest::layers_for.
[[nodiscard]] std::vector<config::ValueLayer> asked_layers(const config::EarlyValue& value);

}  // namespace pentatron::training
