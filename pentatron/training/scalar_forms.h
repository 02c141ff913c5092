// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/step_scalars.h"

namespace pentatron::training {

// Where a number of a step is shown, and how. Empty texts: not there.
struct ScalarForm {
  std::string line;        // fmt's format of the value in Megatron's line, after "<name>: "
  std::string metrics;     // key in the metrics file
  std::string event;       // TensorBoard's tag, by iteration
  bool by_samples = true;  // the event a second time, "<tag> vs samples"
  int place = 0;           // in the line: fields stand in rising order
};

// The form that Megatron gives to a number of that name. One that Megatron does not know is shown
// everywhere: losses after the main one in its format, others after the last number before the
// counts of iterations, with three decimals; the key has '_' for every space and '-'. Counts of
// losses are in the metrics file only.
[[nodiscard]] ScalarForm form_of(const nn::StepScalar& scalar);

}  // namespace pentatron::training
