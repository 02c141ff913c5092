// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/loaded_model.h"

#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/model_names.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/checkpoint/tokenizer_folder.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/validate.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/inference/stored_model.h"
#include "pentatron/models/registry.h"
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
checkpoint::OpenedCheckpoint open_folder(const std::filesystem::path& root, std::int64_t step) {
  checkpoint::OpenedCheckpoint opened;
  if (std::filesystem::exists(root / "manifest.json")) {
    opened.found.folder = root;
    opened.reader = std::make_unique<checkpoint::CheckpointReader>(root);
    return opened;
  }
  opened = checkpoint::open_checkpoint(root, step);
  PENTATRON_CHECK(opened.reader != nullptr, kCheckpoint, "--load {}: no checkpoint there",
                  root.string());
  if (!opened.found.note.empty()) log::warn("{}", opened.found.note);
  return opened;
}

// The configuration that weights were saved with, in the layout asked for.
config::RunConfig in_layout(config::RunConfig config, const LoadOptions& options,
                            std::int64_t world_size) {
  config.parallel = config::ParallelConfig{};
  config.parallel.world_size = world_size;
  config.parallel.tensor_model_parallel_size = options.tensor_model_parallel_size;
  config.parallel.pipeline_model_parallel_size = options.pipeline_model_parallel_size;
  const std::int64_t tp = options.tensor_model_parallel_size;
  if (config.model.pad_vocab_in_softmax) {
    PENTATRON_CHECK(config.model.padded_vocab_size % tp == 0, kConfig,
                    "the model's {} vocabulary rows (--pad-vocab-in-softmax) do not divide by "
                    "--tensor-model-parallel-size {}: choose a divisor",
                    config.model.padded_vocab_size, tp);
  } else {
    // Shapes in the checkpoint are the true ones: padding is only what the ranks need.
    config.model.padded_vocab_size = (config.model.vocab_size + tp - 1) / tp * tp;
  }
  config.model.recompute_granularity.clear();  // nothing is kept for a backward
  if (!options.precision.empty()) config.training.precision = options.precision;
  config::resolve(config, config::Purpose::kModel);
  return config;
}

// Everything but the weights; `config` is in_layout().
LoadedModel make_model(config::RunConfig config, std::unique_ptr<comm::Backend> own,
                       comm::Backend& backend, const LoadOptions& options) {
  LoadedModel model;
  model.backend = std::move(own);
  model.config = std::move(config);
  model.device = options.device;
  model.policy = precision_policy(model.config.training.precision);
  const config::ModelConfig& shape = model.config.model;
  model.context = std::make_unique<comm::ParallelContext>(
      backend, comm::make_grids(model.config.parallel), "generate");
  static_cast<void>(model.context->second_group("pp"));
  const parallel_layers::LeafContext leaf_context = parallel_layers::make_leaf_context(
      *model.context, /*sequence_parallel=*/false, model.policy, options.device);
  const config::StagePlan plan = config::plan_pipeline(shape, model.config.parallel)
                                     .at(static_cast<std::size_t>(model.context->coordinate("pp")));
  model.stages = std::make_unique<nn::LocalStages>();
  model.stages->add(options.make_stage
                        ? options.make_stage(leaf_context, plan)
                        : models::make_stage(models::model_kind(shape), shape, leaf_context, plan));
  return model;
}

LoadedModel load_hugging_face(const std::filesystem::path& root, const LoadOptions& options,
                              std::unique_ptr<comm::Backend> own, comm::Backend& backend) {
  PENTATRON_CHECK(options.step == 0, kConfig,
                  "--ckpt-step {}: {} is a Hugging Face folder, which has no iterations: leave it "
                  "out",
                  options.step, root.string());
  HuggingFaceModel opened = open_hugging_face(root);
  LoadedModel model = make_model(in_layout(std::move(opened.config), options, backend.world_size()),
                                 std::move(own), backend, options);
  read_weights(*model.stages, *opened.reader);
  return model;
}

}  // namespace

LoadedModel load_model(const std::filesystem::path& root, const LoadOptions& options) {
  std::unique_ptr<comm::Backend> own;
  if (options.backend == nullptr) own = comm::make_single_backend();
  comm::Backend& backend = options.backend != nullptr ? *options.backend : *own;
  if (families::is_hugging_face_folder(root)) {
    return load_hugging_face(root, options, std::move(own), backend);
  }
  const checkpoint::OpenedCheckpoint opened = open_folder(root, options.step);
  const std::filesystem::path& folder = opened.found.folder;
  checkpoint::CheckpointReader& reader = *opened.reader;
  config::RunConfig saved = config::from_json(reader.manifest().config, folder.string());
  config::RunConfig config = in_layout(std::move(saved), options, backend.world_size());
  // A stage of the caller's has its own plan.
  if (!options.make_stage) check_stored_model(config.model, reader.manifest(), folder.string());
  LoadedModel model = make_model(std::move(config), std::move(own), backend, options);
  model.tokenizer_problems = checkpoint::tokenizer_problems(folder, reader.manifest());
  model.iteration = reader.manifest().iteration;
  model.folder = folder;
  model.tokenizer = recorded_tokenizer(reader.manifest().train_state, folder.string());
  check_names(*model.stages, *model.context, reader.manifest(), folder.string());
  read_weights(*model.stages, reader);
  read_buffers(*model.stages, reader);
  return model;
}

}  // namespace pentatron::inference
