// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"

// Options with closed choices as enumerations, for what is told apart at several places. The
// configuration keeps the option's own words, which files, checkpoints and messages are made of; a
// word that is no choice: kConfig, naming option and choices.
namespace pentatron::config {

enum class PositionKind {
  kNone,
  kLearnedAbsolute,
  kRope,
  kYarn,
  kLongRope,
  kMrope,
  kAlibi,
  kRelative
};
[[nodiscard]] PositionKind position_kind(const ModelConfig& model);
// Whether queries and keys are rotated.
[[nodiscard]] constexpr bool rotates(PositionKind kind) {
  return kind == PositionKind::kRope || kind == PositionKind::kYarn ||
         kind == PositionKind::kLongRope || kind == PositionKind::kMrope;
}

// Whether anything is dealt over the data-parallel ranks. With --use-megatron-fsdp its strategy
// alone says so, as Megatron has it.
[[nodiscard]] bool shards_over_data(const ParallelConfig& parallel);

enum class OptimizerKind { kAdam, kSgd, kLion, kMuon, kSoap };
[[nodiscard]] OptimizerKind optimizer_kind(const OptimizerConfig& optimizer);
// Whether matrices have a rule of their own, which needs each whole on one rank.
[[nodiscard]] constexpr bool updates_matrices(OptimizerKind kind) {
  return kind == OptimizerKind::kMuon || kind == OptimizerKind::kSoap;
}

enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
[[nodiscard]] DecayStyle decay_style(const OptimizerConfig& optimizer);
// Of the last part of a WSD schedule.
enum class WsdStyle { kExponential, kLinear, kCosine, kMinusSqrt };
[[nodiscard]] WsdStyle wsd_style(const OptimizerConfig& optimizer);

}  // namespace pentatron::config
