// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// Names of the parts of low-rank adapters, which follow from the name of the part they are added
// to: "decoder.layers.0.mlp.linear_fc1.up.weight" has "decoder.layers.0.mlp.linear_fc1.up.lora_a".
namespace pentatron::config {

enum class AdapterPart {
  kDown,       // A [rank, inputs]
  kUp,         // B [outputs, rank]
  kMagnitude,  // of DoRA [outputs]
};

[[nodiscard]] constexpr std::string_view suffix_of(AdapterPart part) {
  return part == AdapterPart::kDown ? ".lora_a"
         : part == AdapterPart::kUp ? ".lora_b"
                                    : ".lora_magnitude";
}

// Of a part or a parameter.
[[nodiscard]] constexpr bool is_adapter_name(std::string_view name) {
  return name.ends_with(suffix_of(AdapterPart::kDown)) ||
         name.ends_with(suffix_of(AdapterPart::kUp)) ||
         name.ends_with(suffix_of(AdapterPart::kMagnitude));
}

// `weight`: a part's name, which ends in ".weight".
[[nodiscard]] inline std::string adapter_name(std::string_view weight, AdapterPart part) {
  constexpr std::string_view kEnd = ".weight";
  if (weight.ends_with(kEnd)) weight.remove_suffix(kEnd.size());
  return std::string(weight) + std::string(suffix_of(part));
}

}  // namespace pentatron::config
