// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "pentatron/checkpoint/manifest.h"
#include "pentatron/training/engine.h"

namespace pentatron::training {

// What an update does to a part.
enum class PartUpdate { kPlain, kWithDecay, kVectorWithDecay, kFrozen };
// By the name under which a checkpoint stores a part: "param/<part>" of every rank's parameters,
// "buffer/<part>" of its buffers.
using ModelParts = std::map<std::string, PartUpdate>;

// Equal on all ranks (collective over the world).
[[nodiscard]] ModelParts model_parts(Engine& engine);

// kCheckpoint error that lists both sets when the weights and buffers in the checkpoint are not
// those of the model. Optimizer state is not looked at.
void check_part_names(const ModelParts& parts, const checkpoint::Manifest& manifest,
                      const std::string& folder);

// " > weight decay 0.1 on 14 matrices; none on 22 vectors (norms and biases)"; "14 matrices and 4
// vectors of query and key norms" with --apply-wd-to-qk-layernorm, and "; 3 parts are frozen" where
// some are.
[[nodiscard]] std::string weight_decay_line(const ModelParts& parts, double weight_decay);

}  // namespace pentatron::training
