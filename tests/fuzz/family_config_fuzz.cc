// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/families/config_file.cc pentatron/families/family.cc pentatron/families/key_rules.cc pentatron/families/name_map.cc pentatron/families/near_names.cc pentatron/families/part_rows.cc pentatron/families/registry.cc
// sources: pentatron/families/rope_keys.cc pentatron/families/window_keys.cc pentatron/families/*/*.cc
// sources: pentatron/config/option_index.cc pentatron/config/layer_pattern.cc pentatron/config/rotary_forms.cc pentatron/config/attention_window.cc pentatron/config/choices.cc
// sources: pentatron/base/json.cc pentatron/base/format.cc pentatron/base/error.cc
// unlinked: what this target never calls
// libs: fmt
// max_len: 4096
// clang-format on
//
// Any bytes as a published model's config.json: refused as data or as unsupported, or a model whose
// sizes are positive and fit each other.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/families/family.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

// Presets are embedded when the library is built; no input reaches them.
std::span<const pentatron::families::Preset> pentatron::families::presets_of(std::string_view) {
  return {};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron;
  families::Description description;
  try {
    description = families::read_config({reinterpret_cast<const char*>(data), size}, "config.json");
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kData || error.kind() == ErrorKind::kUnsupported);
    return 0;
  }
  constexpr std::int64_t kLargest = 1'000'000'000;
  const config::ModelConfig& m = description.model;
  for (const std::int64_t count :
       {m.num_layers, m.hidden_size, m.ffn_hidden_size, m.num_attention_heads, m.num_query_groups,
        m.kv_channels, m.max_position_embeddings, m.vocab_size}) {
    require(count >= 1 && count <= kLargest);
  }
  require(std::isfinite(m.layernorm_epsilon) && std::isfinite(m.hidden_dropout));
  // Names of its tensors are made without a further question.
  (void)description.family->names(m);
  return 0;
}
