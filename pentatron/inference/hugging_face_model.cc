// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/hugging_face_model.h"

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/inference/stored_model.h"
#include "pentatron/models/gpt/sharding.h"

namespace pentatron::inference {

std::vector<families::Part> whole_model_parts(const config::ModelConfig& model) {
  config::ModelConfig whole = model;
  if (!whole.pad_vocab_in_softmax) whole.padded_vocab_size = whole.vocab_size;
  std::vector<families::Part> parts;
  const nn::ParameterPlan plan = models::plan_parameters(whole, 1, 1).at(0).at(0);
  for (const nn::PlannedParameter& parameter : plan.parameters()) {
    for (const nn::ShardPart& part : parameter.spec.parts) {
      parts.push_back({part.name, part.logical_shape});
    }
  }
  return parts;
}

std::string precision_of(const families::Folder& folder) {
  const std::string& dtype = folder.dtype();
  return dtype == "BF16" ? "bf16" : dtype == "F16" ? "fp16" : dtype == "F64" ? "fp64" : "fp32";
}

HuggingFaceModel open_hugging_face(const std::filesystem::path& path) {
  auto folder = std::make_shared<const families::Folder>(path);
  const families::Description& description = folder->description();
  families::check_expressible(description, (path / "config.json").string());
  if (description.of_outer) {
    log::warn(
        "{} is a {}, a model of text and pictures: its language model alone is read, for text; "
        "left out: {}",
        path.string(), description.family->outer->architecture, folder->left_out());
  }
  HuggingFaceModel opened;
  opened.config.model = description.model;
  opened.config.model.seq_length = description.model.max_position_embeddings;
  opened.config.training.precision = precision_of(*folder);
  families::set_tokenizer(path, description.model.vocab_size, opened.config.data);
  check_sizes(opened.config.model, folder->num_tensors(), ErrorKind::kData,
              (path / "config.json").string());
  opened.reader =
      std::make_unique<checkpoint::HuggingFaceReader>(folder, whole_model_parts(description.model));
  return opened;
}

}  // namespace pentatron::inference
