// SPDX-License-Identifier: Apache-2.0
#pragma once

// The activations of an mlp, for both implementations; formulas stand in ops/activation.h.
namespace pentatron {

enum class Activation { kGeluTanh, kGeluErf, kSquaredRelu };

enum class GateKind { kSilu, kQuickGelu, kGeluTanh };
struct Gate {
  GateKind kind = GateKind::kSilu;
  double offset = 0.0;  // added to what is gated
  double clamp = 0.0;   // largest gate and largest absolute value of what is gated; 0: none
};
[[nodiscard]] inline bool is_plain_swiglu(const Gate& gate) {
  return gate.kind == GateKind::kSilu && gate.offset == 0.0 && gate.clamp == 0.0;
}

}  // namespace pentatron
