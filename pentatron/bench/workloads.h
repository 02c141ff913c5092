// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pentatron/config/parser.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::bench {

// A training that is measured: options of `pretrain_gpt` on made-up data, and which steps count.
struct Workload {
  std::string id;     // "S1"
  std::string title;  // model, batch, precision
  std::vector<std::string> words;
  std::int64_t warm_up = 5;  // steps that do not count
  std::int64_t steps = 15;   // that do
};

// Of a GPU with so much memory: S1 to S4. S1 is Llama 3 8B cut to 8 layers in bf16, S2 the same in
// fp8, S3 Qwen2.5 1.5B, S4 GPT-2 of 124M and 1558M parameters. Of a CPU: C1, a small GPT-2.
[[nodiscard]] std::vector<Workload> workloads(Device device, std::int64_t memory_bytes);

// The words with which a run of `steps` steps (those of the warm-up among them) writes `metrics`;
// empty: no file.
[[nodiscard]] std::vector<std::string> run_words(const Workload& workload, std::int64_t steps,
                                                 const std::string& metrics);

// What the options come to, as the program itself reads them.
[[nodiscard]] config::ParsedOptions options_of(const std::vector<std::string>& words);

}  // namespace pentatron::bench
