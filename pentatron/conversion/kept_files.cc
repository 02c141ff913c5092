// SPDX-License-Identifier: Apache-2.0
#include "pentatron/conversion/kept_files.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/checkpoint/tokenizer_folder.h"
#include "pentatron/families/folder.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_files.h"

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

// Version 1: tensors "file/<name>" of bytes.
Files files_in_tensors(checkpoint::CheckpointReader& reader) {
  constexpr std::string_view kPrefix = "file/";
  Files files;
  for (const checkpoint::ManifestTensor& stored : reader.manifest().tensors) {
    if (!stored.name.starts_with(kPrefix)) continue;
    const std::string name = stored.name.substr(kPrefix.size());
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

// What Hugging Face calls a file that a checkpoint keeps under a name of ours.
std::string published_name(const std::string& name, const std::string& tokenizer_type) {
  if (name == tokenizers::kSavedVocabulary) {
    return tokenizer_type.starts_with("Bert") ? "vocab.txt" : "vocab.json";
  }
  if (name == tokenizers::kSavedMerges) return "merges.txt";
  if (name == tokenizers::kSavedModel) return "tokenizer.model";
  return name;
}

}  // namespace

Files files_in_checkpoint(checkpoint::CheckpointReader& reader, const fs::path& folder,
                          const std::string& tokenizer_type) {
  Files files;
  std::map<std::string, std::string> kept = checkpoint::read_tokenizer(folder, reader.manifest());
  for (auto& [name, bytes] : kept) {
    const std::string published = published_name(name, tokenizer_type);
    // A file that has this very name stands for itself.
    if (published == name || !kept.contains(published)) files[published] = std::move(bytes);
  }
  if (!reader.manifest().lists_tokenizer()) files.merge(files_in_tensors(reader));
  return files;
}

Files files_in_folder(const fs::path& folder) {
  Files files;
  for (const std::string& name : families::kept_files(folder)) {
    files[name] = read_text_file(folder / name, families::kMaxKeptBytes);
  }
  return files;
}

Files files_to_keep(const fs::path& folder, const config::DataConfig& data) {
  Files files = files_in_folder(folder);
  for (auto& [name, bytes] :
       tokenizers::read_tokenizer_files(tokenizers::tokenizer_options(data, 0))) {
    const auto same = files.find(published_name(name, data.tokenizer_type));
    if (same != files.end() && same->second == bytes) files.erase(same);
    files[name] = std::move(bytes);
  }
  return files;
}

}  // namespace pentatron::conversion
