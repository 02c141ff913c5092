// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/saved_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/config/config_json.h"
#include "pentatron/families/folder.h"
#include "pentatron/tokenizers/tokenizer_factory.h"
#include "pentatron/tokenizers/tokenizer_files.h"
#include "pentatron/training/pretrained.h"

namespace pentatron::training {
namespace {

namespace fs = std::filesystem;

// No part of a model's identity, but Megatron-LM takes them too.
constexpr std::array<std::string_view, 4> kOfRun = {"seq_length", "group_query_attention",
                                                    "hidden_dropout", "attention_dropout"};
constexpr std::array<std::string_view, 12> kOfTokenizer = {"tokenizer_type",
                                                           "tokenizer_model",
                                                           "vocab_file",
                                                           "merge_file",
                                                           "tokenizer_special_tokens",
                                                           "tiktoken_pattern",
                                                           "tiktoken_num_special_tokens",
                                                           "tokenizer_hf_no_include_special_tokens",
                                                           "tokenizer_sentencepiece_legacy",
                                                           "tokenizer_sentencepiece_ignore_extra_"
                                                           "whitespaces",
                                                           "null_tokenizer_eod_id",
                                                           "null_tokenizer_pad_id"};
constexpr std::array<std::string_view, 3> kOfLayout = {
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size"};
constexpr std::array<std::string_view, 7> kOfStages = {
    "num_layers_per_virtual_pipeline_stage",   "num_virtual_stages_per_pipeline_rank",
    "decoder_first_pipeline_num_layers",       "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout"};

template <std::size_t kSize>
bool contains(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_on(const config::EarlyValue& value, std::string_view dest, bool otherwise) {
  const std::optional<std::string> text = value(dest);
  return text ? *text != "false" : otherwise;
}

std::int64_t asked_step(const config::EarlyValue& value) {
  const std::string text = value("ckpt_step").value_or("");
  std::int64_t step = 0;
  std::from_chars(text.data(), text.data() + text.size(), step);
  return std::max<std::int64_t>(step, 0);  // what is no number is told by the parser
}

// Paths into the checkpoint; those that the user names are left out of the layer anyway.
void use_own_files(const SavedOptions& saved, const config::EarlyValue& value,
                   config::DataConfig& data) {
  tokenizers::TokenizerOptions files = tokenizers::tokenizer_options(data, 0);
  const std::array<std::pair<const char*, std::string*>, 3> paths = {
      {{"vocab_file", &files.vocab_file},
       {"merge_file", &files.merge_file},
       {"tokenizer_model", &files.tokenizer_model}}};
  for (const auto& [dest, path] : paths) {
    if (value(dest)) path->clear();
  }
  tokenizers::use_saved_files(files, saved.folder);
  data.vocab_file = files.vocab_file;
  data.merge_file = files.merge_file;
  data.tokenizer_model = files.tokenizer_model;
}

}  // namespace

std::optional<SavedOptions> saved_options(const fs::path& root, std::int64_t step) {
  fs::path folder = root;
  if (!fs::exists(root / "manifest.json")) {
    const checkpoint::Found found = checkpoint::find_checkpoint(root, step);
    if (found.result != checkpoint::FindResult::kFound) return std::nullopt;
    folder = found.folder;
  }
  const checkpoint::CheckpointReader reader(folder);
  return SavedOptions{config::from_json(reader.manifest().config, folder.string()), folder};
}

std::optional<config::ValueLayer> checkpoint_layer(const config::EarlyValue& value) {
  const std::string load = first_folder(value);
  if (load.empty() || !is_on(value, "use_checkpoint_args", false)) return std::nullopt;
  if (families::is_hugging_face_folder(load)) return std::nullopt;
  std::optional<SavedOptions> saved = saved_options(load, asked_step(value));
  if (!saved) return std::nullopt;
  config::RunConfig& config = saved->config;
  const bool tokenizer = is_on(value, "use_tokenizer_model_from_checkpoint_args", true) &&
                         !value("tokenizer_type").has_value();
  const bool layout = is_on(value, "use_mp_args_from_checkpoint_args", false);
  const bool stages = layout && !value("pipeline_model_parallel_size").has_value();
  // NullTokenizer's option counts without the end token that the saved vocabulary has.
  const std::string type =
      tokenizer ? config.data.tokenizer_type : value("tokenizer_type").value_or("");
  const bool numbers = type == "NullTokenizer";
  if (tokenizer) use_own_files(*saved, value, config.data);
  // A preset, which stands below, may hold another value where the checkpoint's is the default.
  const bool all = value("model_preset").has_value();
  config::ValueLayer layer{.origin = config::Origin::kCheckpoint, .label = saved->folder.string()};
  for (const config::ConfigField& field : config::config_fields()) {
    const bool taken =
        (field.part == "model" && field.resume == config::Resume::kModel) ||
        contains(kOfRun, field.name) || (tokenizer && contains(kOfTokenizer, field.name)) ||
        (layout && contains(kOfLayout, field.name)) || (stages && contains(kOfStages, field.name));
    if (!taken) continue;
    config::OptionValue held = field.binding.get(config);
    if (!all && held == field.binding.get(config::RunConfig{})) continue;
    if (field.name == "vocab_size" && numbers) held = config.model.vocab_size - 1;
    layer.values.emplace_back(field.name, std::move(held));
  }
  return layer;
}

}  // namespace pentatron::training
