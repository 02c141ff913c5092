// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "pentatron/base/env.h"
#include "pentatron/tensor/device.h"

// For tests that need cards: without them they are skipped and say why, with
// PENTATRON_REQUIRE_GPU=1 they fail (for machines that must have them). The count is one of cards.
#define PENTATRON_NEEDS_CARDS(count)                                                            \
  do {                                                                                          \
    const auto& half = ::pentatron::tensor::load_cuda_half();                                   \
    if (half.available && half.cards >= (count)) break;                                         \
    const std::string why = half.available ? "only one card" : half.reason;                     \
    if ((count) <= 1 && ::pentatron::env_string("PENTATRON_REQUIRE_GPU").value_or("") == "1") { \
      FAIL() << "PENTATRON_REQUIRE_GPU=1, but " << why;                                         \
    }                                                                                           \
    GTEST_SKIP() << "needs " << (count) << " cards: " << why;                                   \
  } while (false)
