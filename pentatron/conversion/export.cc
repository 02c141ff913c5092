// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/export.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/json.h"
#include "pentatron/base/log.h"
#include "pentatron/base/stop_cleanup.h"
#include "pentatron/checkpoint/open.h"
#include "pentatron/config/adapters.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/validate.h"
#include "pentatron/conversion/adapter_export.h"
#include "pentatron/conversion/kept_files.h"
#include "pentatron/conversion/model_card.h"
#include "pentatron/conversion/tensor_writer.h"
#include "pentatron/conversion/weights_layout.h"
#include "pentatron/inference/hugging_face_model.h"
#include "pentatron/inference/stored_model.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::conversion {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kUsualShard = std::int64_t{5} << 30;

checkpoint::OpenedCheckpoint open(const ExportOptions& options) {
  checkpoint::OpenedCheckpoint opened;
  if (fs::exists(options.load / "manifest.json")) {
    opened.found.folder = options.load;
    opened.reader = std::make_unique<checkpoint::CheckpointReader>(options.load);
    return opened;
  }
  opened = checkpoint::open_checkpoint(options.load, options.step);
  PENTATRON_CHECK(opened.reader != nullptr, kCheckpoint, "--load {}: no checkpoint there",
                  options.load.string());
  if (!opened.found.note.empty()) log::warn("{}", opened.found.note);
  return opened;
}

// What goes beside the weights, config.json among it.
struct Beside {
  const families::Family* family = nullptr;
  Files files;
  std::optional<WeightsLayout> layout = {};  // what an import kept
};

const families::Family& wanted_family(const ExportOptions& options,
                                      const config::ModelConfig& model) {
  if (options.family.empty()) {
    const families::Family* fitting = families::family_of(model);
    PENTATRON_CHECK(fitting != nullptr, kUnsupported,
                    "no family describes this model exactly: --family NAME says what differs from "
                    "that one");
    return *fitting;
  }
  const families::Family* family = families::find_family(options.family);
  std::vector<std::string_view> known;
  for (const families::Family* one : families::families()) known.push_back(one->name);
  PENTATRON_CHECK(family != nullptr, kConfig, "--family {}: expected one of {}", options.family,
                  fmt::join(known, ", "));
  return *family;
}

// The config.json of before, where it still describes the model; `required`: or an error.
std::optional<families::Description> same_model(const Files& files, const std::string& where,
                                                const config::ModelConfig& model, bool required) {
  const auto config = files.find("config.json");
  if (config == files.end()) return std::nullopt;
  families::Description there = families::read_config(config->second, where);
  PENTATRON_CHECK(!there.of_outer, kUnsupported,
                  "{} describes a {}, of which a checkpoint holds the language model alone: leave "
                  "out --like, and it is written as a {}",
                  where, there.family->outer->architecture, there.family->architecture);
  const std::string differences = families::model_differences(there.model, model);
  if (differences.empty()) return there;
  PENTATRON_CHECK(!required, kConfig, "{} describes another model (there, and here): {}", where,
                  differences);
  return std::nullopt;
}

std::string torch_name(DType dtype) {
  const std::string_view name = tensor::dtype_name(dtype);
  return name == "bf16"   ? "bfloat16"
         : name == "fp16" ? "float16"
         : name == "fp64" ? "float64"
                          : "float32";
}

// The text with another dtype of the weights.
std::string with_dtype(const std::string& text, const std::string& dtype) {
  // In the order of the file, so that nothing else changes.
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  const bool newer = json.contains("dtype");
  json[newer ? "dtype" : "torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

Beside files_beside(const ExportOptions& options, checkpoint::OpenedCheckpoint& opened,
                    const config::ModelConfig& model, const config::DataConfig& data, DType dtype) {
  Beside beside;
  const bool like = !options.like.empty();
  Files kept = like ? files_in_folder(options.like)
                    : files_in_checkpoint(*opened.reader, opened.found.folder, data.tokenizer_type);
  if (const auto found = kept.find(kWeightsLayoutFile); found != kept.end()) {
    beside.layout = parse_weights_layout(found->second, "weights_layout.json in the checkpoint");
    kept.erase(found);
  }
  const std::string where =
      like ? (options.like / "config.json").string() : "config.json in the checkpoint";
  const auto before = same_model(kept, where, model, like);
  beside.files = kept;
  if (before && options.family.empty()) {
    beside.family = before->family;
    if (!options.dtype.empty()) {
      std::string& text = beside.files.at("config.json");
      text = with_dtype(text, torch_name(dtype));
    }
    return beside;
  }
  beside.family = &wanted_family(options, model);
  beside.files["config.json"] = families::write_config(*beside.family, model, torch_name(dtype));
  return beside;
}

void check_target(const fs::path& target) {
  std::error_code code;
  PENTATRON_CHECK(!target.filename().empty() && !fs::exists(fs::symlink_status(target, code)),
                  kConfig,
                  "--hf {}: something is there already, and nothing is overwritten: give the name "
                  "of a new folder",
                  target.string());
}

void write_files(const fs::path& folder, const Files& files) {
  for (const auto& [name, text] : files) {
    OutputFile file(folder / name);
    file.write(text);
    file.close();
  }
}

// A folder that is there whole or not at all.
void write_new_folder(const fs::path& target, const std::function<void(const fs::path&)>& write) {
  const fs::path folder = fs::absolute(target);
  create_folders(folder.parent_path());
  const fs::path saving =
      folder.parent_path() / fmt::format(".{}.saving_{}", folder.filename().string(), ::getpid());
  TemporaryName temporary;
  try {
    {
      const HoldStop hold;
      create_folders(saving);
      temporary.remember(saving);
    }
    write(saving);
    sync_folder(saving);
    const HoldStop hold;
    check_target(target);
    rename_durably(saving, folder);
    temporary.forget();
  } catch (...) {
    remove_tree(saving);
    temporary.forget();
    throw;
  }
}

// The adapters alone.
Converted write_adapter_alone(const ExportOptions& options, checkpoint::OpenedCheckpoint& opened,
                              const config::RunConfig& config, const fs::path& target) {
  PENTATRON_CHECK(config.model.lora_rank > 0, kConfig,
                  "--adapter: {} was trained without adapters (--lora-rank): leave it out for the "
                  "whole model",
                  options.load.string());
  PENTATRON_CHECK(options.dtype.empty(), kConfig, "--dtype: adapters are written in fp32");
  const config::ModelConfig base = config::without_adapters(config.model);
  const Files kept = options.like.empty() ? files_in_checkpoint(*opened.reader, opened.found.folder,
                                                                config.data.tokenizer_type)
                                          : files_in_folder(options.like);
  const auto before =
      same_model(kept, "config.json of the model underneath", base, !options.like.empty());
  const families::Family& family =
      before && options.family.empty() ? *before->family : wanted_family(options, base);
  const bool from_folder = families::is_hugging_face_folder(config.checkpoint.load);
  const fs::path underneath = !options.like.empty() ? options.like
                              : from_folder         ? fs::path(config.checkpoint.load)
                                                    : fs::path();
  AdapterFiles files;
  write_new_folder(target, [&](const fs::path& folder) {
    files = write_adapter(folder, *opened.reader, family, config.model, underneath.string());
  });
  return {.folder = target,
          .family = std::string(family.name),
          .tensors = files.tensors,
          .bytes = files.bytes};
}

}  // namespace

Converted export_hugging_face(const ExportOptions& options) {
  // "out/" and "out" are one folder.
  const fs::path target = options.hf.has_filename() ? options.hf : options.hf.parent_path();
  check_target(target);
  checkpoint::OpenedCheckpoint opened = open(options);
  checkpoint::CheckpointReader& reader = *opened.reader;
  const std::string label = opened.found.folder.string();
  config::RunConfig config = config::from_json(reader.manifest().config, label);
  config.parallel = config::ParallelConfig{};
  // Other readers know no padding: what is inside the softmax becomes part of the vocabulary.
  if (std::exchange(config.model.pad_vocab_in_softmax, false)) {
    config.model.vocab_size = config.model.padded_vocab_size;
  }
  config.model.padded_vocab_size = config.model.vocab_size;
  config::resolve(config, config::Purpose::kModel);
  const config::ModelConfig base = config::without_adapters(config.model);
  inference::check_stored_model(config.model, reader.manifest(), label);
  if (options.adapter) return write_adapter_alone(options, opened, config, target);

  const std::vector<families::Part> parts = inference::whole_model_parts(base);
  const CheckpointAdapters adapters(reader, config.model);
  TensorWriter writer(reader, parts, options.dtype, adapters);
  Beside beside = files_beside(options, opened, base, config.data, writer.dtype());
  writer.link(*beside.family, base);
  beside.files["README.md"] = model_card({.family = *beside.family,
                                          .model = base,
                                          .dtype = torch_name(writer.dtype()),
                                          .iteration = reader.manifest().iteration,
                                          .parameters = writer.num_parameters()});
  // The files that were imported, unless others are asked for.
  const bool same_files = beside.layout && options.max_shard_bytes == 0 && options.family.empty() &&
                          writer.fits(*beside.layout);
  write_new_folder(target, [&](const fs::path& folder) {
    if (same_files) {
      writer.write(folder, *beside.layout);
    } else {
      writer.write(folder, options.max_shard_bytes > 0 ? options.max_shard_bytes : kUsualShard);
    }
    write_files(folder, beside.files);
    sync_folder(folder);
    // Read back as any reader would.
    (void)families::Folder(folder).links(parts);
  });
  return {.folder = target,
          .family = std::string(beside.family->name),
          .tensors = writer.num_tensors(),
          .bytes = writer.bytes()};
}

}  // namespace pentatron::conversion
