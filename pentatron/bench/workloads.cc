// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/workloads.h"

#include "pentatron/config/validate.h"
#include "pentatron/training/asked_layers.h"

namespace pentatron::bench {
namespace {

using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A vocabulary without a tokenizer's files. NullTokenizer adds one id, the end of a document.
Words vocabulary(std::int64_t ids) {
  return {"--tokenizer-type", "NullTokenizer", "--vocab-size", std::to_string(ids - 1)};
}
Words batch(std::int64_t micro, std::int64_t num_micro_batches) {
  return {"--micro-batch-size", std::to_string(micro), "--global-batch-size",
          std::to_string(micro * num_micro_batches)};
}

Words llama_of_8_layers() {
  return joined(joined({"--num-layers",
                        "8",
                        "--hidden-size",
                        "4096",
                        "--ffn-hidden-size",
                        "14336",
                        "--num-attention-heads",
                        "32",
                        "--group-query-attention",
                        "--num-query-groups",
                        "8",
                        "--seq-length",
                        "8192",
                        "--max-position-embeddings",
                        "8192",
                        "--normalization",
                        "RMSNorm",
                        "--swiglu",
                        "--position-embedding-type",
                        "rope",
                        "--disable-bias-linear",
                        "--untie-embeddings-and-output-weights",
                        "--bf16"},
                       vocabulary(128256)),
                batch(1, 8));
}

Words gpt2(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t length) {
  return {"--num-layers",         std::to_string(layers),  "--hidden-size",
          std::to_string(hidden), "--num-attention-heads", std::to_string(heads),
          "--seq-length",         std::to_string(length),  "--max-position-embeddings",
          std::to_string(length)};
}

// 8 bytes a parameter: weights, gradients and moments, rounded stochastically.
Words state_in_bf16() {
  Words words = {"--use-precision-aware-optimizer"};
  for (const char* part :
       {"--main-params-dtype", "--main-grads-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"}) {
    words.insert(words.end(), {part, "bf16"});
  }
  return words;
}

std::vector<Workload> gpu_workloads(std::int64_t memory_bytes) {
  const Words fp8 = {"--fp8-format", "hybrid"};
  const Words qwen =
      joined(joined({"--model-preset", "qwen2.5-1.5b", "--seq-length", "1024", "--bf16"},
                    vocabulary(151936)),
             batch(8, 64));
  const auto gpt2_of = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
    return joined(joined(gpt2(layers, hidden, heads, 1024), {"--bf16"}), vocabulary(50257));
  };
  constexpr std::int64_t kRoomy = std::int64_t{100} << 30;
  const bool roomy = memory_bytes > kRoomy;
  return {
      {"S1", "8 layers of Llama 3 8B, 1 x 8192, 8 micro-batches, bf16", llama_of_8_layers()},
      {"S1-bf16-state", "the same, all state in bf16",
       joined(llama_of_8_layers(), state_in_bf16())},
      {"S2", "S1 with layers in fp8, tensorwise",
       joined(joined(llama_of_8_layers(), fp8), {"--fp8-recipe", "tensorwise"})},
      {"S2-delayed", "the same, layers in fp8, delayed scales",
       joined(joined(llama_of_8_layers(), fp8), {"--fp8-recipe", "delayed"})},
      {"S2-blockwise", "the same, layers in fp8, scales of blocks",
       joined(joined(llama_of_8_layers(), {"--fp8-format", "e4m3"}),
              {"--fp8-recipe", "blockwise"})},
      {"S2-head", "the same, tensorwise, head in fp8 too",
       joined(joined(llama_of_8_layers(), fp8),
              {"--fp8-recipe", "tensorwise", "--fp8-output-proj"})},
      {"S3", "Qwen2.5 1.5B, 8 x 1024, 64 micro-batches, bf16", qwen, 2, 4},
      {"S3-fp8", "the same, layers in fp8, tensorwise",
       joined(joined(qwen, fp8), {"--fp8-recipe", "tensorwise"}), 2, 4},
      {"S3-bf16-state", "S3 with all state in bf16", joined(qwen, state_in_bf16()), 2, 4},
      {"S3-fp8-bf16-state", "the same, layers in fp8, tensorwise",
       joined(joined(joined(qwen, fp8), {"--fp8-recipe", "tensorwise"}), state_in_bf16()), 2, 4},
      {"S4", "GPT-2 124M, 64 x 1024, 8 micro-batches, bf16",
       joined(gpt2_of(12, 768, 12), batch(64, 8))},
      {"S4-1558M",
       roomy ? "GPT-2 1558M, 16 x 1024, 8 micro-batches, bf16"
             : "GPT-2 1558M, 8 x 1024, 16 micro-batches, bf16",
       joined(gpt2_of(48, 1600, 25), roomy ? batch(16, 8) : batch(8, 16)), 3, 8},
  };
}

}  // namespace

std::vector<Workload> workloads(Device device, std::int64_t memory_bytes) {
  if (device.is_cuda()) return gpu_workloads(memory_bytes);
  return {{"C1", "GPT-2 of 4 layers of 256, 4 x 256, 2 micro-batches, fp32",
           joined(joined(gpt2(4, 256, 4, 256), vocabulary(4096)), batch(4, 2)), 2, 6}};
}

std::vector<std::string> run_words(const Workload& workload, std::int64_t steps,
                                   const std::string& metrics) {
  const std::string count = std::to_string(steps);
  Words words = joined(workload.words, {"--mock-data", "--train-iters", count, "--log-interval",
                                        count, "--eval-iters", "0"});
  words = joined(words, {"--lr", "1e-4", "--lr-decay-style", "constant"});
  words = joined(words, {"--weight-decay", "0.1", "--clip-grad", "1.0", "--adam-beta2", "0.95"});
  words = joined(words, {"--attention-dropout", "0", "--hidden-dropout", "0"});
  if (!metrics.empty()) words = joined(words, {"--metrics-file", metrics});
  return words;
}

config::ParsedOptions options_of(const std::vector<std::string>& words) {
  config::ParseRequest request;
  request.words = words;
  request.layers_for = training::asked_layers;
  return config::load_options(request);
}

}  // namespace pentatron::bench
