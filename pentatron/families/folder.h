// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/base/safetensors.h"
#include "pentatron/config/config.h"
#include "pentatron/families/family.h"

namespace pentatron::families {

// A folder of Hugging Face: config.json, model.safetensors or shards with
// model.safetensors.index.json, tokenizer files. Everything in it is outside data: names and sizes
// are checked before they are used. Errors: kIo, kData, kUnsupported, naming file and remedy.
class Folder final {
 public:
  explicit Folder(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const Description& description() const { return description_; }
  // One of config.json's: "BF16", the most frequent dtype of the weights.
  [[nodiscard]] const std::string& dtype() const { return dtype_; }
  [[nodiscard]] std::size_t num_tensors() const { return tensors_.size(); }
  // Of a model of text and pictures: what is not read, "vision_tower (437 tensors), ..."; else
  // empty.
  [[nodiscard]] std::string left_out() const;

  // Links of all parts of the model, with the names that this folder has. All tensors are accounted
  // for: kData that names what is missing, unexpected (each with the nearest name), of another
  // shape or of a dtype that is no floating-point one, and a tied output that is not the embedding.
  [[nodiscard]] std::vector<TensorLink> links(const std::vector<Part>& parts) const;

  // Its weight files by name, and the text of the index beside them (empty: there is one file).
  [[nodiscard]] const std::map<std::string, std::unique_ptr<SafetensorsFile>>& files() const {
    return files_;
  }
  [[nodiscard]] const std::string& index_text() const { return index_text_; }

  [[nodiscard]] const SafetensorsEntry& entry(const std::string& tensor) const;
  [[nodiscard]] std::span<const std::byte> bytes(const std::string& tensor) const;

 private:
  void open_shards();
  void add_file(const std::string& file);
  void find_prefixes();
  [[nodiscard]] bool is_other_part(const std::string& tensor) const;
  void check_tied(const std::vector<TensorLink>& links) const;
  // Name in this folder, which may be one of a bare model.
  [[nodiscard]] std::string name_here(const std::string& tensor) const;
  [[nodiscard]] bool is_ignored(const std::string& tensor) const;
  [[nodiscard]] std::string tied_output() const;  // empty: not tied

  std::filesystem::path path_;
  Description description_;
  std::string dtype_;
  std::string index_text_;
  bool bare_ = false;                                     // names lack the family's base_prefix
  const OuterModel::Prefixes* outer_prefixes_ = nullptr;  // null: names are the family's
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> tensors_;
};

// A plain name inside a folder, of a file of weights.
[[nodiscard]] bool is_shard_name(const std::string& name);

// Where the rules of a family put the output's weight, where it is the embedding's own; else empty.
[[nodiscard]] std::string tied_output_name(const Family& family, const ModelConfig& model);

// A folder that has a config.json and safetensors, and no checkpoint of our own.
[[nodiscard]] bool is_hugging_face_folder(const std::filesystem::path& path);

// Files that go with the weights: config.json, those of tokenizers, generation settings, licence.
// Sorted names of those that are there as regular files.
[[nodiscard]] std::vector<std::string> kept_files(const std::filesystem::path& folder);
inline constexpr const char* kSingleWeights = "model.safetensors";
inline constexpr const char* kWeightsIndex = "model.safetensors.index.json";
inline constexpr std::uint64_t kMaxKeptBytes = 256ULL << 20;  // of one of them

// --tokenizer-type and its files as the folder has them; without any: numbers (NullTokenizer) of
// the model's vocabulary, the last of which ends a text.
void set_tokenizer(const std::filesystem::path& folder, std::int64_t vocab_size,
                   config::DataConfig& data);

}  // namespace pentatron::families
