// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "pentatron/base/file.h"
#include "pentatron/base/safetensors.h"
#include "tests/functional/tiny_run.h"

namespace pentatron::functional {

// The child's resident memory is read when the log line of a step appears and once more when the
// next does; the smaller of the two leaves out what the step itself holds for a moment.
TEST(Memory, ResidentStaysFlat) {
  const auto at = [](const RunningProgram& program, int step) {
    const std::string number = std::to_string(step);
    const std::string line = "] iteration " + std::string(8 - number.size(), ' ') + number + "/";
    return program.out.find(line) != std::string::npos;
  };
  std::int64_t early_kb = 0;
  std::int64_t late_kb = 0;
  const TinyRun run = try_train(
      base().with("--train-iters", 1020).with("--log-interval", 10).with("--num-workers", 2),
      {.timeout = std::chrono::minutes(5), .observe = [&](const RunningProgram& program) {
         const auto sample = [&](std::int64_t& kept, int begin, int end) {
           if (!at(program, begin) || at(program, end)) return;
           const std::int64_t now = process_status(program.pid, "VmRSS");
           if (now > 0 && (kept == 0 || now < kept)) kept = now;
         };
         sample(early_kb, 100, 110);
         sample(late_kb, 1000, 1010);
       }});
  EXPECT_TRUE(run.program.ok()) << run.program.describe();
  EXPECT_EQ(run.losses().size(), 1020U);
  ASSERT_GT(early_kb, 0);
  ASSERT_GT(late_kb, 0);
  std::cout << "resident after 100 steps " << early_kb << " kB, after 1000 " << late_kb << " kB\n";
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the run itself passed; AddressSanitizer keeps freed memory";
#endif
  EXPECT_LE(static_cast<double>(late_kb), 1.01 * static_cast<double>(early_kb));
}

namespace {

namespace fs = std::filesystem;

// What a folder of Hugging Face holds: config.json, and the shapes of the tensors.
struct FolderSpec {
  std::string config;
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors = {};
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    tensors.emplace_back(name, std::move(shape));
  }
  void add_norm(const std::string& name, std::int64_t width, bool bias) {
    add(name + ".weight", {width});
    if (bias) add(name + ".bias", {width});
  }
};

std::size_t num_values(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

// Zeros in fp32. Returns the bytes of the largest tensor.
std::int64_t write_folder(const fs::path& folder, const FolderSpec& spec) {
  fs::create_directories(folder);
  write_file(folder / "config.json", spec.config);
  std::size_t largest = 0;
  for (const auto& [name, shape] : spec.tensors) largest = std::max(largest, num_values(shape));
  const std::vector<float> values(largest);
  std::vector<SafetensorsItem> items;
  for (const auto& [name, shape] : spec.tensors) {
    items.push_back(
        {name, "F32", shape, std::as_bytes(std::span(values).first(num_values(shape)))});
  }
  OutputFile file(folder / "model.safetensors");
  write_safetensors(items, {}, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.close();
  return static_cast<std::int64_t>(largest * sizeof(float));
}

constexpr std::int64_t kWidth = 512;
// Of the largest tensor, which has 50 MiB or more. Conversions keep some 0.4 of it; how many mapped
// pages a kernel still counts when it is asked is its own affair.
constexpr double kShareOfLargest = 0.9;

// Each part is a tensor; the largest is the tied embedding.
FolderSpec llama(bool large) {
  const int rows = large ? 32768 : 64, layers = large ? 14 : 1;
  FolderSpec spec{fmt::format(
      R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 512, "intermediate_size": 2048,
         "num_hidden_layers": {}, "num_attention_heads": 8, "tie_word_embeddings": true,
         "max_position_embeddings": 128}})",
      rows, layers)};
  spec.add("model.embed_tokens.weight", {rows, kWidth});
  spec.add_norm("model.norm", kWidth, false);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      spec.add(at + "self_attn." + name + ".weight", {kWidth, kWidth});
    }
    spec.add(at + "mlp.gate_proj.weight", {4 * kWidth, kWidth});
    spec.add(at + "mlp.up_proj.weight", {4 * kWidth, kWidth});
    spec.add(at + "mlp.down_proj.weight", {kWidth, 4 * kWidth});
    spec.add_norm(at + "input_layernorm", kWidth, false);
    spec.add_norm(at + "post_attention_layernorm", kWidth, false);
  }
  return spec;
}

// Matrices are stored as their transposes; query, key and value stand side by side.
FolderSpec gpt2(bool large) {
  const int inner = large ? 32768 : 64, layers = large ? 2 : 1;
  FolderSpec spec{fmt::format(
      R"({{"model_type": "gpt2", "vocab_size": 64, "n_embd": 512, "n_inner": {}, "n_layer": {},
         "n_head": 8, "n_positions": 128, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
         "resid_pdrop": 0.0}})",
      inner, layers)};
  spec.add("transformer.wte.weight", {64, kWidth});
  spec.add("transformer.wpe.weight", {128, kWidth});
  spec.add_norm("transformer.ln_f", kWidth, true);
  const auto turned = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    spec.add(name + ".weight", {in, out});
    spec.add(name + ".bias", {out});
  };
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("transformer.h.{}.", layer);
    turned(at + "attn.c_attn", kWidth, 3 * kWidth);
    turned(at + "attn.c_proj", kWidth, kWidth);
    turned(at + "mlp.c_fc", kWidth, inner);
    turned(at + "mlp.c_proj", inner, kWidth);
    spec.add_norm(at + "ln_1", kWidth, true);
    spec.add_norm(at + "ln_2", kWidth, true);
  }
  return spec;
}

// Query, key and value one below the other, gate above up: the largest tensor has two parts.
FolderSpec phi3(bool large) {
  const int inner = large ? 16384 : 64, layers = large ? 3 : 1;
  FolderSpec spec{fmt::format(
      R"({{"model_type": "phi3", "vocab_size": 64, "hidden_size": 512, "intermediate_size": {},
         "num_hidden_layers": {}, "num_attention_heads": 8, "tie_word_embeddings": false,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "max_position_embeddings": 128}})",
      inner, layers)};
  spec.add("model.embed_tokens.weight", {64, kWidth});
  spec.add("lm_head.weight", {64, kWidth});
  spec.add_norm("model.norm", kWidth, false);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    spec.add(at + "self_attn.qkv_proj.weight", {3 * kWidth, kWidth});
    spec.add(at + "self_attn.o_proj.weight", {kWidth, kWidth});
    spec.add(at + "mlp.gate_up_proj.weight", {2 * inner, kWidth});
    spec.add(at + "mlp.down_proj.weight", {kWidth, inner});
    spec.add_norm(at + "input_layernorm", kWidth, false);
    spec.add_norm(at + "post_attention_layernorm", kWidth, false);
  }
  return spec;
}

// Head by head its query, key and value: the largest tensor has three parts in many pieces.
FolderSpec gpt_neox(bool large) {
  const std::int64_t width = large ? 2048 : 64;
  const int layers = large ? 4 : 1;
  FolderSpec spec{fmt::format(
      R"({{"model_type": "gpt_neox", "vocab_size": 64, "hidden_size": {}, "intermediate_size": 64,
         "num_hidden_layers": {}, "num_attention_heads": 8, "hidden_act": "gelu",
         "max_position_embeddings": 128}})",
      width, layers)};
  spec.add("gpt_neox.embed_in.weight", {64, width});
  spec.add("embed_out.weight", {64, width});
  spec.add_norm("gpt_neox.final_layer_norm", width, true);
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    spec.add(name + ".weight", {out, in});
    spec.add(name + ".bias", {out});
  };
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("gpt_neox.layers.{}.", layer);
    linear(at + "attention.query_key_value", 3 * width, width);
    linear(at + "attention.dense", width, width);
    linear(at + "mlp.dense_h_to_4h", 64, width);
    linear(at + "mlp.dense_4h_to_h", width, 64);
    spec.add_norm(at + "input_layernorm", width, true);
    spec.add_norm(at + "post_attention_layernorm", width, true);
  }
  return spec;
}

// Largest resident memory of a run of the program, in bytes: pages of its own and of mapped files,
// so that weights which are only looked at count as well as copies of them.
std::int64_t peak_of(std::vector<std::string> words) {
  std::int64_t peak_kb = 0;
  const ProgramResult result =
      run_program({.words = std::move(words), .observe = [&](const RunningProgram& program) {
                     peak_kb = std::max(peak_kb, process_status(program.pid, "VmHWM"));
                   }});
  EXPECT_TRUE(result.ok()) << result.describe();
  return peak_kb * 1024;
}

struct Peaks {
  std::int64_t in = 0, out = 0, largest = 0;
};

Peaks peaks(FolderSpec (*make)(bool), bool large, const std::vector<std::string>& more) {
  const fs::path folder = new_folder();
  const auto path = [&](const char* what) { return (folder / what).string(); };
  Peaks found{.largest = write_folder(path("hf"), make(large))};
  EXPECT_GT(fs::file_size(folder / "hf/model.safetensors"), (large ? 4 : 1) * found.largest);
  found.in = peak_of({"convert", "import", "--hf", path("hf"), "--save", path("save")});
  std::vector<std::string> words{"convert", "export", "--load", path("save"), "--hf", path("back")};
  words.insert(words.end(), more.begin(), more.end());
  found.out = peak_of(words);
  fs::remove_all(folder);
  return found;
}

}  // namespace

// Above what a tiny model needs, a conversion of 0.3 GB takes less than its largest tensor, in
// every way in which parts lie in tensors.
TEST(Memory, ConversionHoldsOneTensor) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  struct Case {
    const char* name;
    FolderSpec (*make)(bool);
    std::vector<std::string> more = {};
  };
  for (const Case& one : {Case{"llama", llama}, Case{"llama to bf16", llama, {"--dtype", "bf16"}},
                          Case{"gpt2", gpt2}, Case{"gpt2 to fp64", gpt2, {"--dtype", "fp64"}},
                          Case{"phi3", phi3}, Case{"gpt_neox", gpt_neox}}) {
    SCOPED_TRACE(one.name);
    const Peaks small = peaks(one.make, /*large=*/false, one.more);
    const Peaks large = peaks(one.make, /*large=*/true, one.more);
    const auto allowed = static_cast<std::int64_t>(kShareOfLargest * large.largest);
    std::cout << one.name << ": import " << (large.in - small.in) / 1024 << " kB, export "
              << (large.out - small.out) / 1024 << " kB above a tiny model, allowed "
              << allowed / 1024 << " kB\n";
    EXPECT_LE(large.in - small.in, allowed);
    EXPECT_LE(large.out - small.out, allowed);
  }
}

}  // namespace pentatron::functional
