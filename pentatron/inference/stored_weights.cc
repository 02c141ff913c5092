// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/stored_weights.h"

#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/model_names.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/checkpoint/tokenizer_folder.h"
#include "pentatron/config/config_json.h"
#include "pentatron/families/folder.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/inference/stored_model.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::inference {
namespace {

// No tensor of the model is left as it was made, none of the checkpoint is passed over.
void check_names(nn::LocalStages& stages, comm::ParallelContext& context,
                 const checkpoint::Manifest& manifest, const std::string& folder) {
  nlohmann::json mine = nlohmann::json::array();
  for (const nn::Parameter* parameter : stages.parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) mine.push_back("param/" + part.name);
  }
  for (const nn::Buffer* buffer : stages.buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts) mine.push_back("buffer/" + part.name);
  }
  std::set<std::string> names;
  for (const std::string& text : comm::all_gather_bytes(context.world(), mine.dump())) {
    for (const auto& name : nlohmann::json::parse(text)) names.insert(name.get<std::string>());
  }
  checkpoint::check_model_names(names, manifest, folder);
}

void read_weights(nn::LocalStages& stages, const checkpoint::HuggingFaceReader& reader) {
  for (nn::Parameter* parameter : stages.parameters()) {
    parameter->data().zero_();
    for (const nn::ShardPart& part : parameter->spec().parts) {
      if (part.box.empty()) continue;
      Tensor values = tensor::empty({part.box.num_elements()}, DType::Double);
      reader.read(part.name, part.logical_shape, part.box, 0, values);
      nn::part_view(parameter->data(), part).copy_(values.view(part.box.size));
    }
  }
}

void read_buffers(nn::LocalStages& stages, checkpoint::CheckpointReader& reader) {
  for (nn::Buffer* buffer : stages.buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts) {
      if (part.box.empty()) continue;
      const Tensor there = buffer->part_values(part);
      const Tensor host = there.cpu();
      reader.read("buffer/" + part.name, part.logical_shape, part.box, 0, host);
      if (!host.is_same(there)) Tensor(there).copy_(host);
    }
  }
}

void read_weights(nn::LocalStages& stages, checkpoint::CheckpointReader& reader) {
  for (nn::Parameter* parameter : stages.parameters()) {
    parameter->data().zero_();
    for (const nn::ShardPart& part : parameter->spec().parts) {
      if (part.box.empty()) continue;
      Tensor values = tensor::empty({part.box.num_elements()}, DType::Double);
      reader.read("param/" + part.name, part.logical_shape, part.box, 0, values);
      nn::part_view(parameter->data(), part).copy_(values.view(part.box.size));
    }
  }
}

std::string recorded_tokenizer(const std::string& train_state, const std::string& folder) {
  const nlohmann::json json = parse_json(train_state, folder + ": train_state");
  const auto found = json.find("tokenizer");
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// One iteration's folder, or the newest checkpoint of a --save folder whose files are whole. Every
// rank looks for itself, and all find the same.
checkpoint::OpenedCheckpoint open_folder(const std::filesystem::path& root, std::int64_t step,
                                         std::string_view option) {
  checkpoint::OpenedCheckpoint opened;
  if (std::filesystem::exists(root / "manifest.json")) {
    opened.found.folder = root;
    opened.reader = std::make_unique<checkpoint::CheckpointReader>(root);
    return opened;
  }
  opened = checkpoint::open_checkpoint(root, step);
  PENTATRON_CHECK(opened.reader != nullptr, kCheckpoint, "{} {}: no checkpoint there", option,
                  root.string());
  if (!opened.found.note.empty()) log::warn("{}", opened.found.note);
  return opened;
}

StoredWeights open_hugging_face_weights(const std::filesystem::path& root, std::int64_t step) {
  PENTATRON_CHECK(step == 0, kConfig,
                  "--ckpt-step {}: {} is a Hugging Face folder, which has no iterations: leave it "
                  "out",
                  step, root.string());
  HuggingFaceModel opened = open_hugging_face(root);
  StoredWeights stored;
  stored.config = std::move(opened.config);
  stored.hugging_face = std::move(opened.reader);
  return stored;
}

}  // namespace

StoredWeights open_weights(const std::filesystem::path& root, std::int64_t step,
                           std::string_view option) {
  if (families::is_hugging_face_folder(root)) return open_hugging_face_weights(root, step);
  checkpoint::OpenedCheckpoint opened = open_folder(root, step, option);
  StoredWeights stored;
  stored.folder = opened.found.folder;
  const std::string folder = stored.folder.string();
  const checkpoint::Manifest& manifest = opened.reader->manifest();
  stored.config = config::from_json(manifest.config, folder);
  stored.iteration = manifest.iteration;
  stored.tokenizer = recorded_tokenizer(manifest.train_state, folder);
  stored.tokenizer_problems = checkpoint::tokenizer_problems(stored.folder, manifest);
  stored.checkpoint = std::move(opened.reader);
  return stored;
}

void StoredWeights::check(const config::ModelConfig& model) const {
  if (checkpoint) check_stored_model(model, checkpoint->manifest(), folder.string());
}

void StoredWeights::read_into(nn::LocalStages& stages, comm::ParallelContext& context) {
  if (hugging_face) {
    read_weights(stages, *hugging_face);
    return;
  }
  check_names(stages, context, checkpoint->manifest(), folder.string());
  read_weights(stages, *checkpoint);
  read_buffers(stages, *checkpoint);
}

}  // namespace pentatron::inference
