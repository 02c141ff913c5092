// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

// Models whose layers are unlike each other (heterogeneous layers), as Megatron-LM and the
// config.json of the models of Nemotron-NAS describe them: JSON with a list "block_configs", one
// entry a layer,
//   {"attention": {"num_query_groups" or "n_heads_in_group": number or null,
//                  "no_op": false, "replace_with_linear": false},
//    "ffn" or "mlp": {"ffn_hidden_size" or "ffn_mult": number or null,
//                     "no_op": false, "replace_with_linear": false}}
// n_heads_in_group is query heads a key head; ffn_mult m gives floor(2/3 m hidden), rounded up to a
// multiple of 256. null, or no number at all: as the model's other layers. A size together with
// no_op or replace_with_linear is refused.
namespace pentatron::config {

enum class SublayerForm {
  kUsual,
  kLinear,  // one matrix [hidden, hidden], behind the norm
  kNone,    // the layer hands on what comes in
};

struct LayerShape {
  SublayerForm attention = SublayerForm::kUsual;
  std::int64_t num_query_groups = 0;  // 0 unless `attention` is usual
  SublayerForm mlp = SublayerForm::kUsual;
  std::int64_t ffn_hidden_size = 0;  // likewise
};

// One entry a layer, for every model; sizes are resolved. What --heterogeneous-layers-config-path
// names must have been read (resolve_heterogeneous_layers). Kind config for text that is no such
// JSON.
[[nodiscard]] std::vector<LayerShape> layer_shapes(const ModelConfig& model);

// Reads the file of --heterogeneous-layers-config-path into the text, so that checkpoints carry it,
// and puts the text in one spelling of all that mean the same. Refused, each by its name: a file
// and a text that differ, keys whose values are not honoured, other numbers of layers, heads or
// channels than the options say (num_hidden_layers, hidden_size, ... beside the list), sizes that
// do not fit the heads or the `tp` tensor-parallel ranks, and forms of layers that have no such
// parts. Once done, doing it again changes nothing. Without these options: nothing.
void resolve_heterogeneous_layers(ModelConfig& model, std::int64_t tp, Problems& problems);

}  // namespace pentatron::config
