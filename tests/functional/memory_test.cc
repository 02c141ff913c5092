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

// A Hugging Face folder of the Llama kind whose largest tensor, the tied embedding, has `rows`
// rows.
void write_llama(const std::filesystem::path& folder, int rows, int layers) {
  constexpr int kWidth = 512;
  std::filesystem::create_directories(folder);
  const std::string sizes = fmt::format(
      R"("vocab_size": {}, "hidden_size": {w}, "intermediate_size": {f}, "num_hidden_layers": {})",
      rows, layers, fmt::arg("w", kWidth), fmt::arg("f", 4 * kWidth));
  write_file(folder / "config.json",
             "{" + sizes +
                 R"(, "model_type": "llama", "num_attention_heads": 8, "tie_word_embeddings": true,
                 "max_position_embeddings": 128})");
  const std::vector<float> values(static_cast<std::size_t>(kWidth) * std::max(rows, 4 * kWidth));
  std::vector<SafetensorsItem> items;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    items.push_back({name, "F32", std::move(shape), std::as_bytes(std::span(values).first(count))});
  };
  add("model.embed_tokens.weight", {rows, kWidth});
  add("model.norm.weight", {kWidth});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(at + "self_attn." + name + ".weight", {kWidth, kWidth});
    }
    for (const char* name : {"gate_proj", "up_proj"}) {
      add(at + "mlp." + name + ".weight", {4 * kWidth, kWidth});
    }
    add(at + "mlp.down_proj.weight", {kWidth, 4 * kWidth});
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
      add(at + name + ".weight", {kWidth});
    }
  }
  OutputFile file(folder / "model.safetensors");
  write_safetensors(items, {}, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.close();
}

// Largest resident memory of a run of the program, in bytes.
std::int64_t peak_of(std::vector<std::string> words) {
  std::int64_t peak_kb = 0;
  const ProgramResult result =
      run_program({.words = std::move(words), .observe = [&](const RunningProgram& program) {
                     peak_kb = std::max(peak_kb, process_status(program.pid, "VmHWM"));
                   }});
  EXPECT_TRUE(result.ok()) << result.describe();
  return peak_kb * 1024;
}

}  // namespace

// 0.3 GB of weights pass through memory one tensor at a time.
TEST(Memory, ConversionHoldsOneTensor) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  const std::filesystem::path folder = new_folder();
  constexpr int kRows = 32768;
  constexpr std::int64_t kLargest = std::int64_t{kRows} * 512 * 4;
  constexpr std::int64_t kConstant = std::int64_t{32} << 20;  // staged rows of 16 MiB, and headers
  const auto peaks = [&](const std::string& name, int rows, int layers) {
    const auto path = [&](const char* what) { return (folder / (name + what)).string(); };
    write_llama(path("_hf"), rows, layers);
    const std::int64_t in =
        peak_of({"convert", "import", "--hf", path("_hf"), "--save", path("_save")});
    const std::int64_t out =
        peak_of({"convert", "export", "--load", path("_save"), "--hf", path("_back")});
    return std::pair(in, out);
  };
  const auto [small_in, small_out] = peaks("small", 64, 1);
  const auto [large_in, large_out] = peaks("large", kRows, 14);
  const auto allowed = static_cast<std::int64_t>(1.1 * kLargest) + kConstant;
  std::cout << "import " << (large_in - small_in) / 1024 << " kB, export "
            << (large_out - small_out) / 1024 << " kB above a tiny model, allowed "
            << allowed / 1024 << " kB\n";
  EXPECT_GT(std::filesystem::file_size(folder / "large_hf/model.safetensors"), 4 * kLargest);
  EXPECT_LE(large_in - small_in, allowed);
  EXPECT_LE(large_out - small_out, allowed);
}

}  // namespace pentatron::functional
