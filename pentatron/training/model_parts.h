// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "pentatron/checkpoint/manifest.h"
#include "pentatron/training/engine.h"

namespace pentatron::training {

// Whether weight decay applies, by the name under which a checkpoint stores a part: "param/<part>"
// of every rank's parameters, "buffer/<part>" of its buffers. Equal on all ranks (collective over
// the world).
[[nodiscard]] std::map<std::string, bool> model_parts(Engine& engine);

// kCheckpoint error that lists both sets when the weights and buffers in the checkpoint are not
// those of the model. Optimizer state is not looked at.
void check_part_names(const std::map<std::string, bool>& parts,
                      const checkpoint::Manifest& manifest, const std::string& folder);

// " > weight decay 0.1 on 14 matrices; none on 22 vectors (norms and biases)"
[[nodiscard]] std::string weight_decay_line(const std::map<std::string, bool>& parts,
                                            double weight_decay);

}  // namespace pentatron::training
