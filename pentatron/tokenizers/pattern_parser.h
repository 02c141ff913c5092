// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {

// A regular expression as instructions of a non-deterministic automaton, in order of preference.
struct PatternProgram {
  enum class Op : std::uint8_t {
    kTake,        // one character of sets[a], then the next instruction
    kSplit,       // a, and if that fails b
    kJump,        // a
    kIfNext,      // go on if the next character is in sets[a]
    kUnlessNext,  // go on if it is not, or the text ends
    kMatch,
  };
  struct Instruction {
    Op op;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
  };
  std::vector<Instruction> instructions;
  std::vector<CodePointSet> sets;
};

// Throws kData naming the pattern for what is not understood (SplitPattern says what is), for
// nesting over 50 levels and for programs over 20,000 instructions.
[[nodiscard]] PatternProgram parse_pattern(std::string_view pattern);

}  // namespace pentatron::tokenizers
