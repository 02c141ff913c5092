// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "pentatron/comm/backend.h"

namespace pentatron::comm {

// A backend whose peers can be told what a rank was about when it fell silent.
class PhaseListener {
 public:
  virtual ~PhaseListener() = default;
  virtual void note_phase(std::string_view phase) = 0;
};

// What this rank is about to do besides collectives ("building the data").
inline void note_phase(Backend& backend, std::string_view phase) {
  if (auto* listener = dynamic_cast<PhaseListener*>(&backend)) listener->note_phase(phase);
}

}  // namespace pentatron::comm
