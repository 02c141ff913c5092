// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/peft_adapter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/families/registry.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::checkpoint {
namespace {

using nlohmann::json;

constexpr std::int64_t kHidden = 4;
constexpr const char* kQkv = "base_model.model.transformer.h.0.attn.c_attn";
constexpr const char* kDown = "base_model.model.transformer.h.0.mlp.c_proj";
const std::string kLayer = "decoder.layers.0.";

config::ModelConfig model() {
  config::ModelConfig m;
  m.num_layers = 1;
  m.hidden_size = kHidden;
  m.num_attention_heads = m.num_query_groups = 2;
  m.kv_channels = 2;
  m.ffn_hidden_size = 8;
  return m;
}

std::vector<families::Part> parts() {
  std::vector<families::Part> all;
  for (const char* part : {"q", "k", "v"}) {
    all.push_back({kLayer + "self_attention.linear_qkv." + part + ".weight", {kHidden, kHidden}});
  }
  all.push_back({kLayer + "mlp.linear_fc2.weight", {kHidden, 8}});
  return all;
}

// Element (row, column) is 10 row + column + 1, or 0 where `zero` says so.
Tensor counted(std::int64_t rows, std::int64_t columns,
               const std::function<bool(std::int64_t, std::int64_t)>& zero = {}) {
  std::vector<double> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const bool none = zero && zero(r, c);
      values.push_back(none ? 0.0 : static_cast<double>(10 * r + c + 1));
    }
  }
  return tensor::from_vector(values).view({rows, columns});
}

class Files {
 public:
  explicit Files(const char* changes = "{}") {
    json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"bias", "none"}};
    config.update(json::parse(changes));
    write_text(folder_.path() / "adapter_config.json", config.dump());
  }
  Files& add(const std::string& name, const Tensor& values) {
    tensors_.emplace_back(name, values.contiguous());
    return *this;
  }
  [[nodiscard]] PeftAdapter open() const {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, values] : tensors_) {
      items.push_back({name,
                       "F64",
                       tensor::shape_of(values),
                       {static_cast<const std::byte*>(values.const_data_ptr()),
                        static_cast<std::size_t>(values.numel()) * sizeof(double)}});
    }
    OutputFile file(folder_.path() / "adapter_model.safetensors");
    write_safetensors(items, {}, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    file.close();
    return {folder_.path(), *families::find_family("gpt2"), model(), parts()};
  }

 private:
  static void write_text(const std::filesystem::path& path, const std::string& text) {
    OutputFile file(path);
    file.write(text);
    file.close();
  }
  TempFolder folder_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

TEST(PeftAdapter, PartsOfOneTensorShareItsAAndHaveTheirRowsOfB) {
  const Tensor down = counted(2, kHidden), up = counted(3 * kHidden, 2);
  const PeftAdapter adapter = Files()
                                  .add(std::string(kQkv) + ".lora_A.weight", down)
                                  .add(std::string(kQkv) + ".lora_B.weight", up)
                                  .open();
  EXPECT_FALSE(adapter.adapts(kLayer + "mlp.linear_fc2.weight"));
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::string name = parts().at(static_cast<std::size_t>(i)).name;
    ASSERT_TRUE(adapter.adapts(name));
    const PeftAdapter::Values values = adapter.read(name, 2, 2.0);
    EXPECT_TRUE(values.down.equal(down)) << name;
    EXPECT_TRUE(values.up.equal(up.narrow(0, i * kHidden, kHidden))) << name;
    EXPECT_FALSE(values.magnitude.defined());
    // In a run of rank 3 and scale 4/3: the third row is empty, B takes up the ratio.
    const PeftAdapter::Values wider = adapter.read(name, 3, 4.0 / 3.0);
    EXPECT_TRUE(wider.down.narrow(0, 0, 2).equal(down));
    EXPECT_EQ(wider.down.narrow(0, 2, 1).abs().max().item<double>(), 0);
    const Tensor product = wider.up.mm(wider.down).mul(4.0 / 3.0);
    const Tensor expected = values.up.mm(values.down).mul(2.0);
    EXPECT_LE(product.sub(expected).abs().max().item<double>(), 1e-12 * 1e4);
  }
  expect_error(ErrorKind::kUnsupported, "--lora-rank 2",
               [&] { (void)adapter.read(parts()[0].name, 1, 1.0); });
}

TEST(PeftAdapter, BlocksGoToTheirParts) {
  const auto off_block = [](std::int64_t row, std::int64_t column) {
    return row / kHidden != column / 2;
  };
  const Tensor down = counted(6, kHidden), up = counted(3 * kHidden, 6, off_block);
  const Tensor magnitude = counted(3 * kHidden, 1).view({-1});
  const PeftAdapter adapter = Files(R"({"rank_pattern": {"attn.c_attn": 6},
         "alpha_pattern": {"attn.c_attn": 12}, "use_dora": true})")
                                  .add(std::string(kQkv) + ".lora_A.weight", down)
                                  .add(std::string(kQkv) + ".lora_B.weight", up)
                                  .add(std::string(kQkv) + ".lora_magnitude_vector", magnitude)
                                  .open();
  for (std::int64_t i = 0; i < 3; ++i) {
    const PeftAdapter::Values values =
        adapter.read(parts().at(static_cast<std::size_t>(i)).name, 2, 2.0);
    EXPECT_TRUE(values.down.equal(down.narrow(0, 2 * i, 2)));
    EXPECT_TRUE(values.up.equal(up.narrow(0, i * kHidden, kHidden).narrow(1, 2 * i, 2)));
    EXPECT_TRUE(values.magnitude.equal(magnitude.narrow(0, i * kHidden, kHidden)));
  }
}

TEST(PeftAdapter, EveryTensorIsAccountedFor) {
  const Tensor down = counted(2, 8), up = counted(kHidden, 2);
  const auto refused = [&](const Files& files, ErrorKind kind, const std::string& words) {
    expect_error(kind, words, [&] {
      const PeftAdapter adapter = files.open();
      (void)adapter.read(kLayer + "mlp.linear_fc2.weight", 2, 2.0);
    });
  };
  const std::string a = std::string(kDown) + ".lora_A.weight";
  const std::string b = std::string(kDown) + ".lora_B.weight";
  EXPECT_TRUE(Files().add(a, down).add(b, up).open().adapts(kLayer + "mlp.linear_fc2.weight"));
  refused(Files().add(a, down), ErrorKind::kData, "lacks " + b);
  refused(Files().add(a, down).add(b, up).add("base_model.model.lm_head.lora_A.weight", up),
          ErrorKind::kData, "no linear layer for base_model.model.lm_head");
  refused(Files().add(a, up).add(b, up), ErrorKind::kData, "has the shape [4, 2], expected [2, 8]");
  refused(Files(R"({"use_dora": true})").add(a, down).add(b, up), ErrorKind::kData,
          "lora_magnitude_vector");
  refused(Files(R"({"peft_type": "IA3"})").add(a, down).add(b, up), ErrorKind::kUnsupported,
          "peft_type");
  refused(Files(R"({"modules_to_save": ["lm_head"]})").add(a, down).add(b, up),
          ErrorKind::kUnsupported, "modules_to_save");
  refused(Files(R"({"init_lora_weights": "pissa"})").add(a, down).add(b, up),
          ErrorKind::kUnsupported, "init_lora_weights");
  refused(Files(R"({"r": 0})").add(a, down).add(b, up), ErrorKind::kData, "r");
  refused(Files(R"({"rank_pattern": {".*c_proj": 2}})").add(a, down).add(b, up),
          ErrorKind::kUnsupported, "rank_pattern");
}

}  // namespace
}  // namespace pentatron::checkpoint
