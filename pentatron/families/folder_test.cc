// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/families/test_support.h"

namespace pentatron::families {
namespace {

namespace fs = std::filesystem;
using Shapes = std::map<std::string, std::vector<std::int64_t>>;

constexpr const char* kEmbedding = "model.embed_tokens.weight";

// Values of the tensors as they are written: all that tests look at.
constexpr float kValue = 1.5F;
constexpr float kOther = 2.5F;

void write_shard(const fs::path& path, const Shapes& tensors, const std::string& changed = {}) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsItem> items;
  for (const auto& [name, shape] : tensors) {
    const auto count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    values.emplace_back(static_cast<std::size_t>(count), name == changed ? kOther : kValue);
  }
  std::size_t i = 0;
  for (const auto& [name, shape] : tensors) {
    items.push_back({name, "F32", shape, std::as_bytes(std::span(values[i++]))});
  }
  std::string text;
  write_safetensors(items, {}, [&](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  write_file_atomically(path, text);
}

class FolderTest : public testing::Test {
 protected:
  // A model of testdata/models.json: config.json, and its tensors to change and write.
  explicit FolderTest(const char* model = "llama")
      : config_(test_support::reference_models().at(model).at("config")),
        tensors_(test_support::reference_models().at(model).at("tensors").get<Shapes>()) {}

  void write_config() { write_file_atomically(path() / "config.json", config_.dump()); }
  void write(const std::string& changed = {}) {
    write_config();
    write_shard(path() / "model.safetensors", tensors_, changed);
  }
  void tie() { config_["tie_word_embeddings"] = true; }
  void rename(const std::string& before, const std::string& after) {
    tensors_[after] = tensors_.at(before);
    tensors_.erase(before);
  }
  [[nodiscard]] std::vector<TensorLink> links() const {
    const Folder folder(path());
    return folder.links(test_support::parts_of(folder.description().model));
  }
  [[nodiscard]] const fs::path& path() const { return folder_.path(); }

  TempFolder folder_{"pentatron_families"};
  Json config_;
  Shapes tensors_;
};

TEST_F(FolderTest, AllTensorsHaveTheirParts) {
  write();
  EXPECT_EQ(links().size(), tensors_.size());
  const Folder folder(path());
  EXPECT_EQ(folder.dtype(), "F32");
  EXPECT_EQ(folder.entry(kEmbedding).shape, (std::vector<std::int64_t>{97, 64}));
  EXPECT_EQ(folder.bytes("model.norm.weight").size(), 64 * sizeof(float));
  EXPECT_TRUE(is_hugging_face_folder(path()));
  write_file_atomically(path() / "manifest.json", "{}");
  EXPECT_FALSE(is_hugging_face_folder(path()));
}

TEST_F(FolderTest, WhatIsMissingOrTooMuchIsNamedWithItsNeighbour) {
  rename("model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.uq_proj.weight");
  tensors_["zzzz"] = {1};
  tensors_.erase("lm_head.weight");
  tensors_["model.norm.weight"] = {63};
  write();
  for (const char* part :
       {"model.layers.1.mlp.up_proj.weight is missing; there is model.layers.1.mlp.uq_proj.weight",
        "'model.layers.1.mlp.uq_proj.weight' is unexpected; expected is "
        "model.layers.1.mlp.up_proj.weight",
        "lm_head.weight is missing\n", "'zzzz' is unexpected",
        "model.norm.weight has the shape [63], expected [64]"}) {
    expect_error(ErrorKind::kData, part, [&] { (void)links(); });
  }
}

TEST_F(FolderTest, OnlyTenLinesOfManyProblems) {
  tensors_ = {{"a", {1}}};
  write();
  expect_error(ErrorKind::kData, "and 12 more", [&] { (void)links(); });
}

TEST_F(FolderTest, BuffersOfOldExportsArePassedOver) {
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {8};
  write();
  EXPECT_EQ(links().size(), tensors_.size() - 1);
}

TEST_F(FolderTest, TiedOutputIsACopyOrNotThere) {
  tie();
  write();
  EXPECT_EQ(links().size(), tensors_.size() - 1);
  write(kEmbedding);
  expect_error(ErrorKind::kData, "lm_head.weight has other values than model.embed_tokens.weight",
               [&] { (void)links(); });
  tensors_.erase("lm_head.weight");
  write();
  EXPECT_EQ(links().size(), tensors_.size());
}

TEST_F(FolderTest, ABareModelHasNamesWithoutPrefix) {
  tie();
  tensors_.erase("lm_head.weight");
  Shapes bare;
  for (const auto& [name, shape] : tensors_)
    bare[name.substr(std::string("model.").size())] = shape;
  tensors_ = bare;
  config_["architectures"] = {"LlamaModel"};
  write();
  const std::vector<TensorLink> found = links();
  EXPECT_EQ(found.size(), tensors_.size());
  EXPECT_EQ(found.front().tensor, "embed_tokens.weight");
}

// Names of two versions of the library; vision tower and projector are left out, by name.
class WithPictures : public FolderTest, public testing::WithParamInterface<const char*> {
 protected:
  WithPictures() : FolderTest("gemma3") {}
};
TEST_P(WithPictures, TheLanguageModelIsRead) {
  const std::string base = GetParam();
  config_ = {{"model_type", "gemma3"}, {"text_config", config_}, {"vision_config", Json::object()}};
  Shapes all;
  for (const auto& [name, shape] : tensors_) {
    all[base + name.substr(std::string("model.").size())] = shape;
  }
  const bool newer = base.starts_with("model.");
  const std::string tower = newer ? "model.vision_tower" : "vision_tower";
  const std::string projector = newer ? "model.multi_modal_projector" : "multi_modal_projector";
  all[tower + ".vision_model.head.weight"] = {3, 2};
  all[tower + ".vision_model.head.bias"] = {3};
  all[projector + ".mm_input_projection_weight"] = {2};
  const std::size_t num_text = tensors_.size();
  tensors_ = all;
  write();
  const std::vector<TensorLink> found = links();
  std::set<std::string> names;
  for (const TensorLink& link : found) names.insert(link.tensor);
  EXPECT_EQ(names.size(), num_text);
  EXPECT_TRUE(names.contains(base + "embed_tokens.weight"));
  EXPECT_EQ(Folder(path()).left_out(),
            fmt::format("{} (2 tensors), {} (1 tensors)", tower, projector));
  // A copy of the tied output beside it, and a tensor of no known part
  tensors_[newer ? "lm_head.weight" : "language_model.lm_head.weight"] =
      tensors_.at(base + "embed_tokens.weight");
  write();
  EXPECT_EQ(links().size(), found.size());
  tensors_["audio_tower.weight"] = {2};
  write();
  expect_error(ErrorKind::kData, "'audio_tower.weight' is unexpected", [&] { (void)links(); });
}
INSTANTIATE_TEST_SUITE_P(Both, WithPictures,
                         testing::Values("language_model.model.", "model.language_model."));

TEST_F(FolderTest, ShardsAndTheirIndex) {
  write_config();
  Shapes first = tensors_;
  const Shapes second = {{kEmbedding, tensors_.at(kEmbedding)}};
  first.erase(kEmbedding);
  write_shard(path() / "model-00001-of-00002.safetensors", first);
  write_shard(path() / "model-00002-of-00002.safetensors", second);
  Json index;
  for (const auto& [name, shape] : first) {
    index["weight_map"][name] = "model-00001-of-00002.safetensors";
  }
  index["weight_map"][kEmbedding] = "model-00002-of-00002.safetensors";
  const auto write_index = [&] {
    write_file_atomically(path() / "model.safetensors.index.json", index.dump());
  };
  write_index();
  EXPECT_EQ(links().size(), tensors_.size());
  index["weight_map"][kEmbedding] = "model-00001-of-00002.safetensors";
  write_index();
  expect_error(ErrorKind::kData, "does not hold the tensor 'model.embed_tokens.weight'",
               [&] { (void)links(); });
  for (const char* name : {"../x.safetensors", "/etc/passwd", ".x.safetensors", "x.bin", ""}) {
    index["weight_map"][kEmbedding] = name;
    write_index();
    expect_error(ErrorKind::kData, "expected the name of a .safetensors file",
                 [&] { (void)links(); });
  }
  for (const char* text : {"[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {\"a\": 1}}"}) {
    write_file_atomically(path() / "model.safetensors.index.json", text);
    expect_error(ErrorKind::kData, "model.safetensors.index.json", [&] { (void)links(); });
  }
}

TEST_F(FolderTest, TokenizerIsFoundByItsFiles) {
  const auto type = [&] {
    config::DataConfig data;
    set_tokenizer(path(), 97, data);
    return data.tokenizer_type;
  };
  EXPECT_EQ(type(), "NullTokenizer");
  write_file_atomically(path() / "tokenizer.model", "x");
  EXPECT_EQ(type(), "Llama2Tokenizer");
  write_file_atomically(path() / "vocab.json", "{}");
  write_file_atomically(path() / "merges.txt", "");
  EXPECT_EQ(type(), "GPT2BPETokenizer");
  write_file_atomically(path() / "tokenizer.json", "{}");
  EXPECT_EQ(type(), "HuggingFaceTokenizer");
  EXPECT_EQ(kept_files(path()), (std::vector<std::string>{"merges.txt", "tokenizer.json",
                                                          "tokenizer.model", "vocab.json"}));
}

}  // namespace
}  // namespace pentatron::families
