// SPDX-License-Identifier: Apache-2.0
// clang-format off
// sources: pentatron/training/train_state.cc pentatron/config/choices.cc pentatron/base/json.cc pentatron/base/format.cc pentatron/base/error.cc
// unlinked: what this target never calls
// libs: fmt
// max_len: 4096
// clang-format on
//
// Any bytes as the training state of a checkpoint: refused as a checkpoint error, or its counts
// agree with each other and the text that is written of it reads back equal.
#include <cmath>
#include <cstdint>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/training/train_state.h"
#include "tests/fuzz/require.h"

using pentatron::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pentatron;
  const std::string text(reinterpret_cast<const char*>(data), size);
  training::TrainState state;
  try {
    state = training::parse_train_state(text);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kCheckpoint);
    return 0;
  }
  require(state.iteration >= 0 && state.consumed_train_samples >= state.iteration);
  require(state.num_updates >= 0 && state.num_updates <= state.iteration);
  require(std::isfinite(state.loss_scaler.scale) && state.loss_scaler.scale >= 0);
  const std::string written = training::to_json_text(state);
  require(training::to_json_text(training::parse_train_state(written)) == written);
  // The identities are texts of their own.
  for (const std::string& identity : {state.model, state.schedule}) {
    try {
      (void)training::json_differences(identity, state.run);
      (void)training::without_schedule_keys(identity);
    } catch (const Error& error) {
      require(error.kind() == ErrorKind::kCheckpoint);
    }
  }
  return 0;
}
