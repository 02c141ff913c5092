// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/asked_layers.h"

#include <charconv>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/families/folder.h"
#include "pentatron/families/presets.h"
#include "pentatron/training/adapter_loading.h"
#include "pentatron/training/pretrained.h"
#include "pentatron/training/saved_options.h"

namespace pentatron::training {
namespace {

// Only config.json is read here; the tensors are accounted for when they are loaded.
config::ValueLayer folder_layer(const std::string& path) {
  const families::Folder folder(path);
  const families::Description& there = folder.description();
  families::check_expressible(there, path + "/config.json");
  config::ValueLayer layer = families::layer_of(there.model, config::Origin::kCheckpoint, path);
  config::RunConfig run;
  families::set_tokenizer(path, there.model.vocab_size, run.data);
  const bool numbers = config::tokenizer_kind(run.data) == config::TokenizerKind::kNull;
  const config::ValueLayer tokenizer =
      config::layer_from_config(run, config::Origin::kCheckpoint, path, "data");
  for (const auto& value : tokenizer.values) layer.values.push_back(value);
  // NullTokenizer's option counts without the end token.
  for (auto& [dest, value] : layer.values) {
    if (numbers && dest == "vocab_size") value = there.model.vocab_size - 1;
  }
  return layer;
}

// What the adapter of --lora-load asks for.
void add_adapter(const config::EarlyValue& value, const std::string& load,
                 std::vector<config::ValueLayer>& layers) {
  const auto folder = value("lora_load");
  if (!folder || folder->empty()) return;
  std::int64_t step = 0;
  const std::string text = value("ckpt_step").value_or("0");
  std::from_chars(text.data(), text.data() + text.size(), step);  // its row says what it may be
  layers.push_back(adapter_layer(*folder, load, step));
}

}  // namespace

std::vector<config::ValueLayer> asked_layers(const config::EarlyValue& value) {
  std::vector<config::ValueLayer> layers;
  if (const auto preset = value("model_preset"); preset && !preset->empty()) {
    layers.push_back(families::preset_layer(*preset));
  }
  if (auto saved = checkpoint_layer(value)) layers.push_back(std::move(*saved));
  const std::string load = first_folder(value);
  if (load.empty()) return layers;
  const std::string pretrained = value("pretrained_checkpoint").value_or("");
  if (!families::is_hugging_face_folder(load)) {
    // A run that goes on has the model of the folder that it began with.
    if (families::is_hugging_face_folder(pretrained)) layers.push_back(folder_layer(pretrained));
    add_adapter(value, load, layers);
    return layers;
  }
  PENTATRON_CHECK(load == pretrained || value("finetune").value_or("false") != "false", kConfig,
                  "--load {} is a Hugging Face folder, which holds weights only: add --finetune",
                  load);
  PENTATRON_CHECK(!value("ckpt_step"), kConfig,
                  "--ckpt-step: {} is a Hugging Face folder, which has no iterations: leave it out",
                  load);
  layers.push_back(folder_layer(load));
  add_adapter(value, load, layers);
  return layers;
}

}  // namespace pentatron::training
