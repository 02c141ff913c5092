// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/adapter_loading.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/checkpoint/plan.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/config/adapters.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/validate.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/models/gpt/sharding.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

using checkpoint::PeftAdapter;
using config::AdapterPart;

// What an adapter stands on.
struct Base {
  const families::Family* family = nullptr;
  config::ModelConfig model;
};

Base base_of_model(config::ModelConfig model) {
  model = config::without_adapters(std::move(model));
  const families::Family* family = families::family_of(model);
  PENTATRON_CHECK(family != nullptr, kUnsupported,
                  "--lora-load: no family of Hugging Face models describes this model, so PEFT's "
                  "names are not known");
  return {family, std::move(model)};
}

Base base_of(const std::string& load, std::int64_t step) {
  if (families::is_hugging_face_folder(load)) {
    const families::Folder folder(load);
    return {folder.description().family, folder.description().model};
  }
  const checkpoint::Found found = checkpoint::find_checkpoint(load, step);
  PENTATRON_CHECK(found.result == checkpoint::FindResult::kFound, kCheckpoint,
                  "--lora-load: --load {} holds no checkpoint for the adapter to stand on", load);
  const checkpoint::CheckpointReader reader(found.folder);
  return base_of_model(config::from_json(reader.manifest().config, found.folder.string()).model);
}

PeftAdapter open(const std::string& folder, const Base& base) {
  return {folder, *base.family, base.model, inference::whole_model_parts(base.model)};
}

// The weights that modules of this name adapt, in all layers.
std::vector<std::string> weights_of(config::ModelConfig model, const std::string& module) {
  model.lora_rank = 1;
  model.lora_target_modules = {module};
  std::vector<std::string> weights;
  constexpr std::string_view kEnd = config::suffix_of(AdapterPart::kDown);
  for (const families::Part& part : inference::whole_model_parts(model)) {
    if (!part.name.ends_with(kEnd)) continue;
    weights.push_back(part.name.substr(0, part.name.size() - kEnd.size()) + ".weight");
  }
  return weights;
}

// Part names of adapters, by the weight that they belong to.
std::string weight_of(std::string name) {
  name.resize(name.rfind('.'));
  return name + ".weight";
}

Tensor values_of(const PeftAdapter::Values& values, const std::string& name) {
  if (name.ends_with(config::suffix_of(AdapterPart::kDown))) return values.down;
  return name.ends_with(config::suffix_of(AdapterPart::kUp)) ? values.up : values.magnitude;
}

// Row-major elements [begin, begin + out.numel()) of the box.
void copy_range(const Tensor& whole, const nn::Box& box, std::int64_t begin, const Tensor& out) {
  const Shape shape = tensor::shape_of(whole);
  const nn::Box all{Shape(shape.size(), 0), shape};
  const Tensor flat = whole.contiguous().view({-1});
  checkpoint::for_each_run(
      {all, 0, flat.numel()}, {box, begin, begin + out.numel()}, [&](const checkpoint::Run& run) {
        Tensor(out).narrow(0, run.target, run.count).copy_(flat.narrow(0, run.source, run.count));
      });
}

void check_places(const Engine& engine, const PeftAdapter& adapter, const Base& base) {
  const config::ModelConfig& model = engine.config().model;
  PENTATRON_CHECK(adapter.config().dora == model.lora_dora, kConfig,
                  "--lora-load {}: the adapter is {}: {} --lora-dora",
                  engine.config().checkpoint.lora_load, adapter.config().dora ? "DoRA" : "LoRA",
                  adapter.config().dora ? "give" : "leave out");
  const std::vector<std::string>& chosen = model.lora_target_modules;
  for (const std::string& module : config::adaptable_modules(base.model)) {
    if (std::find(chosen.begin(), chosen.end(), module) != chosen.end()) continue;
    for (const std::string& weight : weights_of(base.model, module)) {
      PENTATRON_CHECK(!adapter.adapts(weight), kConfig,
                      "--lora-load {}: it adapts {}, which --lora-target-modules leaves out: add "
                      "{}, or leave the option out",
                      engine.config().checkpoint.lora_load, weight, module);
    }
  }
}

}  // namespace

config::ValueLayer adapter_layer(const std::string& folder, const std::string& load,
                                 std::int64_t step) {
  const Base base = base_of(load, step);
  const PeftAdapter adapter = open(folder, base);
  const families::AdapterConfig& there = adapter.config();
  std::vector<std::string> modules;
  for (const std::string& module : config::adaptable_modules(base.model)) {
    const std::vector<std::string> weights = weights_of(base.model, module);
    const bool any = std::any_of(weights.begin(), weights.end(),
                                 [&](const std::string& name) { return adapter.adapts(name); });
    if (any) modules.push_back(module);
  }
  return {.origin = config::Origin::kCheckpoint,
          .label = folder,
          .values = {{"lora_rank", there.rank},
                     {"lora_alpha", there.alpha},
                     {"lora_dropout", there.dropout},
                     {"lora_rslora", there.rslora},
                     {"lora_dora", there.dora},
                     {"lora_target_modules", modules}}};
}

void load_adapter(Engine& engine) {
  const tensor::NoGrad no_grad;
  const config::CheckpointConfig& options = engine.config().checkpoint;
  const config::ModelConfig& model = engine.config().model;
  const Base base = families::is_hugging_face_folder(options.load) ? base_of(options.load, 0)
                                                                   : base_of_model(model);
  const PeftAdapter adapter = open(options.lora_load, base);
  check_places(engine, adapter, base);
  std::map<std::string, PeftAdapter::Values> read;  // of this rank's weights
  for (const optimizer::StateSlice& slice : engine.state_slices(/*owner_only=*/false)) {
    const std::string& name = slice.part->name;
    if (slice.kind != "main_param" || !config::is_adapter_name(name)) continue;
    const std::string weight = weight_of(name);
    if (!adapter.adapts(weight)) continue;
    auto found = read.find(weight);
    if (found == read.end()) {
      found =
          read.emplace(weight, adapter.read(weight, model.lora_rank, config::adapter_scale(model)))
              .first;
    }
    const Tensor host = slice.values.cpu();
    copy_range(values_of(found->second, name), slice.part->box, slice.box_begin, host);
    if (!host.is_same(slice.values)) Tensor(slice.values).copy_(host);
  }
  engine.optimizer().refresh_parameters();
  if (engine.context().rank() == engine.context().grid().world_size() - 1) {
    log::print_line(fmt::format(" loading the adapter {} ({}, rank {})", options.lora_load,
                                adapter.config().dora ? "DoRA" : "LoRA", adapter.config().rank));
  }
}

}  // namespace pentatron::training
