// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "pentatron/training/llama_test_support.h"

// The model of tests of recorded work, and changes to it. Only tests include it.
namespace pentatron::training::testing_support {

// Llama kind, bf16, no dropout.
inline void gpu_llama(config::RunConfig& c) {
  make_llama(c.model);
  c.model.hidden_dropout = 0;
  c.training.precision = "bf16";
}

inline ChangeConfig gpu_llama_with(ChangeConfig change) {
  return [change = std::move(change)](config::RunConfig& c) {
    gpu_llama(c);
    change(c);
  };
}

}  // namespace pentatron::training::testing_support
