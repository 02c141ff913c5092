// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "pentatron/families/key_rules.h"

namespace pentatron::families {

struct RopeKeys {
  std::string theta = "rope_theta";
  double missing_theta = 10000.0;
  std::string share = {};  // key of the rotated share of a head's channels; empty: all are
  double missing_share = 1.0;
};

// Rotary embedding: base, share and scaling (none, linear, Llama 3's, YaRN). Versions 4 of the
// library say it by rope_theta and rope_scaling, versions 5 by rope_parameters; both are read, and
// the first, which both understand, is written. Other scalings are refused by name.
[[nodiscard]] KeyRule rope_keys(const RopeKeys& keys = {});

// Reads one object of rope parameters (rope_type, rope_theta, factor, ...).
void read_rope_parameters(const ConfigFile& parameters, ModelConfig& model);
// A rope_theta of at least 1.
[[nodiscard]] double read_rope_theta(const ConfigFile& file, std::string_view key, double missing);
// The rope_scaling of a model; null: none.
[[nodiscard]] Json rope_scaling_of(const ModelConfig& model);

}  // namespace pentatron::families
