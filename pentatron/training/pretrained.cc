// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/pretrained.h"

#include <fmt/format.h>

#include "pentatron/base/error.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/families/folder.h"

namespace pentatron::training {
namespace {

bool holds_weights(const std::string& folder) {
  if (folder.empty()) return false;
  if (families::is_hugging_face_folder(folder)) return true;
  return checkpoint::find_checkpoint(folder, 0).result == checkpoint::FindResult::kFound;
}

}  // namespace

std::string first_folder(const config::EarlyValue& value) {
  const std::string load = value("load").value_or("");
  const std::string pretrained = value("pretrained_checkpoint").value_or("");
  return pretrained.empty() || holds_weights(load) ? load : pretrained;
}

std::string use_pretrained(config::CheckpointConfig& options) {
  const std::string& pretrained = options.pretrained_checkpoint;
  if (pretrained.empty() || holds_weights(options.load)) return "";
  const std::string empty = options.load.empty()
                                ? "there is no --load"
                                : fmt::format("--load {} holds no checkpoint yet", options.load);
  PENTATRON_CHECK(holds_weights(pretrained), kCheckpoint,
                  "{}, and --pretrained-checkpoint {} holds none: name a checkpoint's folder or a "
                  "Hugging Face folder",
                  empty, pretrained);
  options.load = pretrained;
  options.finetune = true;
  return fmt::format("{}: the run starts from the weights in --pretrained-checkpoint {}", empty,
                     pretrained);
}

}  // namespace pentatron::training
