// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "pentatron/checkpoint/hugging_face_reader.h"
#include "pentatron/config/config.h"

namespace pentatron::inference {

// All weights of a model by name and logical shape, as one process would hold them.
[[nodiscard]] std::vector<families::Part> whole_model_parts(const config::ModelConfig& model);

// A Hugging Face folder as a run that --load can take: the model that config.json describes, the
// tokenizer of the folder, and its tensors, all accounted for. Errors: those of families::Folder; a
// model that options of this version cannot say: kUnsupported.
struct HuggingFaceModel {
  config::RunConfig config;  // model and tokenizer; sequences of any length that the model takes
  std::unique_ptr<checkpoint::HuggingFaceReader> reader;
};
[[nodiscard]] HuggingFaceModel open_hugging_face(const std::filesystem::path& folder);

// The precision in which such weights are computed with: "bf16", "fp16", "fp32", "fp64".
[[nodiscard]] std::string precision_of(const families::Folder& folder);

}  // namespace pentatron::inference
