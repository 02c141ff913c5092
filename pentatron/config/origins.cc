// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/parser.h"

namespace pentatron::config {

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kPreset:
      return "preset";
    case Origin::kCheckpoint:
      return "checkpoint";
    case Origin::kFile:
      return "file";
    case Origin::kCommandLine:
      return "command line";
    case Origin::kSet:
      return "--set";
    case Origin::kEnvironment:
      return "environment";
  }
  return "default";
}

bool set_by_user(const Origins& origins, std::string_view dest) {
  const auto found = origins.find(dest);
  if (found == origins.end()) return false;
  const Origin origin = found->second.origin;
  return origin == Origin::kFile || origin == Origin::kCommandLine || origin == Origin::kSet;
}

ValueLayer layer_from_config(const RunConfig& config, Origin origin, std::string label,
                             std::string_view part) {
  ValueLayer layer{.origin = origin, .label = std::move(label)};
  for (const OptionSpec* row : all_options()) {
    const OptionSpec& spec = *row;
    // The padded size follows from the layout, which a layer does not carry.
    if (spec.field.part != part || spec.dest == "padded_vocab_size") continue;
    OptionValue value = spec.field.get(config);
    if (value == spec.field.get(RunConfig{})) continue;
    // NullTokenizer's option counts without the end token that the resolved vocabulary has.
    if (spec.dest == "vocab_size" && config.data.null_tokenizer_vocab_size > 0) {
      value = config.data.null_tokenizer_vocab_size;
    }
    layer.values.emplace_back(spec.dest, std::move(value));
  }
  return layer;
}

}  // namespace pentatron::config
