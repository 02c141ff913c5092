// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "pentatron/base/env.h"
#include "pentatron/tensor/device.h"

// For tests that need GPUs: without them they are skipped and say why, with
// PENTATRON_REQUIRE_GPU=1 they fail (for machines that must have them). The count is one of GPUs.
#define PENTATRON_NEEDS_GPUS(count)                                                             \
  do {                                                                                          \
    const auto& library = ::pentatron::tensor::load_cuda_library();                             \
    if (library.available && library.gpus >= (count)) break;                                    \
    const std::string why = library.available ? "only one GPU" : library.reason;                \
    if ((count) <= 1 && ::pentatron::env_string("PENTATRON_REQUIRE_GPU").value_or("") == "1") { \
      FAIL() << "PENTATRON_REQUIRE_GPU=1, but " << why;                                         \
    }                                                                                           \
    GTEST_SKIP() << "needs " << (count) << " GPUs: " << why;                                    \
  } while (false)
