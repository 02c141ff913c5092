// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/loaded_model.h"

#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/model_names.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/validate.h"
#include "pentatron/models/registry.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::inference {
namespace {

// No tensor of the model is left as it was made, none of the checkpoint is passed over.
void check_names(nn::Stage& stage, const checkpoint::Manifest& manifest,
                 const std::string& folder) {
  std::set<std::string> names;
  for (const nn::Parameter* parameter : stage.parameters()) {
    for (const nn::ShardPart& part : parameter->spec().parts) names.insert("param/" + part.name);
  }
  for (const nn::Buffer* buffer : stage.buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts) names.insert("buffer/" + part.name);
  }
  checkpoint::check_model_names(names, manifest, folder);
}

void read_buffers(nn::Stage& stage, checkpoint::CheckpointReader& reader) {
  for (nn::Buffer* buffer : stage.buffers()) {
    for (const nn::ShardPart& part : buffer->spec().parts) {
      if (part.box.empty()) continue;
      const Tensor there = buffer->part_values(part);
      const Tensor host = there.cpu();
      reader.read("buffer/" + part.name, part.logical_shape, part.box, 0, host);
      if (!host.is_same(there)) Tensor(there).copy_(host);
    }
  }
}

void read_weights(nn::Stage& stage, checkpoint::CheckpointReader& reader) {
  for (nn::Parameter* parameter : stage.parameters()) {
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

}  // namespace

CacheShape LoadedModel::cache_shape() const {
  return {.num_layers = config.model.num_layers,
          .num_kv_heads = config.model.num_query_groups,
          .head_dim = config.model.kv_channels,
          .max_positions = config.model.max_position_embeddings};
}

LoadedModel load_model(const std::filesystem::path& root, std::int64_t step,
                       const std::string& precision, Device device,
                       const StageFactory& make_stage) {
  std::filesystem::path folder = root;
  std::unique_ptr<checkpoint::CheckpointReader> opened_reader;
  if (std::filesystem::exists(root / "manifest.json")) {
    opened_reader = std::make_unique<checkpoint::CheckpointReader>(folder);
  } else {
    checkpoint::OpenedCheckpoint opened = checkpoint::open_checkpoint(root, step);
    PENTATRON_CHECK(opened.reader != nullptr, kCheckpoint, "--load {}: no checkpoint there",
                    root.string());
    if (!opened.found.note.empty()) log::warn("{}", opened.found.note);
    folder = opened.found.folder;
    opened_reader = std::move(opened.reader);
  }
  checkpoint::CheckpointReader& reader = *opened_reader;
  LoadedModel model;
  model.config = config::from_json(reader.manifest().config, folder.string());
  model.iteration = reader.manifest().iteration;
  model.tokenizer = recorded_tokenizer(reader.manifest().train_state, folder.string());
  model.config.parallel = config::ParallelConfig{};
  // One rank needs no padding beyond its own: shapes in the checkpoint are the true ones.
  model.config.model.padded_vocab_size = model.config.model.vocab_size;
  if (!precision.empty()) model.config.training.precision = precision;
  config::resolve(model.config, config::Purpose::kModel);
  model.device = device;
  model.policy = precision_policy(model.config.training.precision);
  model.backend = comm::make_single_backend();
  model.context = std::make_unique<comm::ParallelContext>(*model.backend,
                                                          comm::make_grids(model.config.parallel));
  const parallel_layers::LeafContext leaf_context = parallel_layers::make_leaf_context(
      *model.context, /*sequence_parallel=*/false, model.policy, device);
  model.stage = make_stage ? make_stage(leaf_context)
                           : models::make_stage("gpt", model.config.model, leaf_context, {});
  check_names(*model.stage, reader.manifest(), folder.string());
  read_weights(*model.stage, reader);
  read_buffers(*model.stage, reader);
  return model;
}

}  // namespace pentatron::inference
