// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/import.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/checkpoint/writer.h"
#include "pentatron/comm/backend.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/validate.h"
#include "pentatron/conversion/kept_files.h"
#include "pentatron/conversion/weights_layout.h"
#include "pentatron/families/part_rows.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/models/gpt/sharding.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/training/train_state.h"

namespace pentatron::conversion {
namespace fs = std::filesystem;
namespace {

void check_new(const fs::path& folder) {
  std::error_code code;
  const bool empty = fs::is_directory(folder, code) && fs::is_empty(folder, code);
  PENTATRON_CHECK(empty || !fs::exists(fs::symlink_status(folder, code)), kConfig,
                  "--save {}: something is there already, and nothing is overwritten: give a new "
                  "folder",
                  folder.string());
}

// Identity of the folder's tokenizer; empty where it has none, or one that cannot be read here.
std::string tokenizer_identity(const config::RunConfig& config) {
  if (config::tokenizer_kind(config.data) == config::TokenizerKind::kNull) return {};
  try {
    return tokenizers::make_tokenizer(config.data, 0)->identity_hash();
  } catch (const Error& error) {
    log::warn("the tokenizer is not recorded in the checkpoint: {}", error.what());
    return {};
  }
}

// As a run of these weights that has done nothing yet would have it.
std::string state_text(const config::RunConfig& config) {
  config::RunConfig run = config;
  run.training.global_batch_size = run.training.micro_batch_size;
  training::TrainState state;
  state.model = training::model_identity(run);
  state.run = training::run_identity(run);
  state.schedule = training::schedule_identity(run);
  state.tokenizer = tokenizer_identity(run);
  return training::to_json_text(state);
}

}  // namespace

Converted import_hugging_face(const ImportOptions& options) {
  check_new(options.save);
  inference::HuggingFaceModel opened = inference::open_hugging_face(options.hf);
  const checkpoint::HuggingFaceReader& reader = *opened.reader;
  config::RunConfig& config = opened.config;
  config::resolve(config, config::Purpose::kModel);
  config.model.padded_vocab_size = config.model.vocab_size;
  const nn::ParameterPlan plan = models::plan_parameters(config.model, 1, 1).at(0).at(0);

  checkpoint::SaveRequest request{.root = options.save,
                                  .iteration = 0,
                                  .slices = {},
                                  .config = config::to_json(config),
                                  .layout = R"({"imported":"hugging_face"})",
                                  .train_state = state_text(config),
                                  .tokenizer_files = {}};
  for (auto& [name, bytes] : files_to_keep(options.hf, config.data)) {
    request.tokenizer_files.emplace_back(name, std::move(bytes));
  }
  if (reader.folder().description().of_outer) {
    // What describes more than the language model is not true of the checkpoint.
    std::erase_if(request.tokenizer_files,
                  [](const auto& file) { return file.first == "config.json"; });
  } else {
    request.tokenizer_files.emplace_back(kWeightsLayoutFile, to_text(layout_of(reader.folder())));
  }
  Converted result;
  result.family = reader.folder().description().family->name;
  ProgressLine progress({.what = "imported", .unit = "bytes", .line_seconds = 3});
  for (const nn::PlannedParameter& parameter : plan.parameters()) {
    for (const nn::ShardPart& part : parameter.spec.parts) {
      const DType dtype =
          options.dtype.empty() ? reader.dtype(part.name) : tensor::parse_dtype(options.dtype);
      const std::int64_t count = part.box.num_elements();
      progress.expect(count * tensor::item_bytes(dtype));
      checkpoint::SourceSlice slice;
      slice.kind = "param";
      slice.part = &part;
      slice.count = count;
      slice.dtype = dtype;
      const std::int64_t columns = families::row_values(reader.link(part.name));
      slice.piece = reader.rows_at_once(part.name) * columns;
      slice.make = [&reader, &part, &progress, dtype, columns](std::int64_t begin,
                                                               std::int64_t number) {
        Tensor values =
            reader.read_rows(part.name, {begin / columns, (begin + number) / columns}, dtype);
        progress.add(number * tensor::item_bytes(dtype));
        return values;
      };
      request.slices.push_back(std::move(slice));
      ++result.tensors;
    }
  }
  const std::unique_ptr<comm::Backend> backend = comm::make_single_backend();
  const std::unique_ptr<comm::Group> alone = backend->make_group({0}, "import");
  const checkpoint::SaveResult saved = checkpoint::save_checkpoint(request, *alone);
  result.folder = saved.folder;
  result.bytes = saved.bytes;
  return result;
}

}  // namespace pentatron::conversion
