// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/kept_files.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/families/folder.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::conversion {
namespace fs = std::filesystem;
namespace {

// A name that stays inside the folder it is written to.
bool is_plain(std::string_view name) {
  return !name.empty() && !name.starts_with('.') &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return c == '_' || c == '-' || c == '.' || (c >= 'a' && c <= 'z') ||
                  (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

}  // namespace

Files files_in_checkpoint(checkpoint::CheckpointReader& reader) {
  Files files;
  const std::string prefix = std::string(kFileKind) + "/";
  for (const checkpoint::ManifestTensor& stored : reader.manifest().tensors) {
    if (!stored.name.starts_with(prefix)) continue;
    const std::string name = stored.name.substr(prefix.size());
    const std::int64_t bytes = tensor::num_elements(stored.logical_shape);
    PENTATRON_CHECK(is_plain(name) && stored.dtype == "U8" && stored.logical_shape.size() == 1 &&
                        bytes <= static_cast<std::int64_t>(families::kMaxKeptBytes),
                    kCheckpoint, "the checkpoint keeps a file {} of {} {}, which is none of ours",
                    name, bytes, stored.dtype);
    const Tensor values = tensor::empty({bytes}, DType::Byte);
    reader.read(stored.name, stored.logical_shape, {{0}, {bytes}}, 0, values);
    files[name].assign(static_cast<const char*>(values.const_data_ptr()),
                       static_cast<std::size_t>(bytes));
  }
  return files;
}

Files files_in_folder(const fs::path& folder) {
  Files files;
  for (const std::string& name : families::kept_files(folder)) {
    files[name] = read_text_file(folder / name, families::kMaxKeptBytes);
  }
  return files;
}

Files tokenizer_files(const config::DataConfig& data) {
  std::error_code code;
  Files files;
  if (fs::is_directory(data.tokenizer_model, code)) {
    files = files_in_folder(data.tokenizer_model);
    files.erase("config.json");
    return files;
  }
  const auto add = [&](const std::string& path, const std::string& name) {
    if (!fs::is_regular_file(path, code)) return;
    files[name] = read_text_file(path, families::kMaxKeptBytes);
  };
  add(data.tokenizer_model,
      data.tokenizer_model.ends_with(".json") ? "tokenizer.json" : "tokenizer.model");
  add(data.vocab_file, data.vocab_file.ends_with(".json") ? "vocab.json" : "vocab.txt");
  add(data.merge_file, "merges.txt");
  return files;
}

}  // namespace pentatron::conversion
