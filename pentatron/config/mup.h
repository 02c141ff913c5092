// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

namespace pentatron::config {

// What --use-mup derives, by Megatron-LM's rules; `model` has its sizes resolved, with w =
// mup_width_mult = hidden_size / mup_base_hidden_size (the base: hidden_size):
//   softmax_scale = sqrt(mup_base_head_dim or 1) / kv_channels ^ mup_attn_scale_power where the
//   options say none, mup_output_mult = 1 / w where it is 1.
// Without --use-mup: nothing. Once done, doing it again changes nothing.
void resolve_mup(ModelConfig& model, Problems& problems);

}  // namespace pentatron::config
